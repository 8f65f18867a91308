package web

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"zkelectd/internal/operator/status"
)

func TestLabelsAreBounded(t *testing.T) {
	long := strings.Repeat("x", maxLabel)
	for text, want := range map[string]string{
		"dc1": "dc1", "": "", "d\xffc": "d?c", "a\u202e\u009b\n": "a???", long: long, long + "y": long[:maxLabel-3] + "…", strings.Repeat("ä", maxLabel): strings.Repeat("ä", (maxLabel-3)/2) + "…",
		strings.Repeat("\xff", 10*maxLabel): "?", strings.Repeat("\xffa", maxLabel): strings.Repeat("?a", maxLabel)[:maxLabel-3] + "…",
	} {
		if got := label(text); got != want || len(got) > maxLabel || !utf8.ValidString(got) {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

// An unauthorized client has registered 6,000 members, each on a different site with a long name. The metrics stay small, can be
// parsed, and count what was omitted.
func TestForgedSitesDoNotFloodMetrics(t *testing.T) {
	const forged = 3000
	v := leadingElector()
	v.Site, v.ElectedSite = "here", "there"
	v.Sites = map[string]status.SiteCounts{"here": {Ineligible: 1}, "there": {Ineligible: 2}, "dc1": {Eligible: 2}, "/other": {Eligible: 1, Excluded: 1}}
	for i := range forged {
		v.Sites[strings.Repeat("z", 700)+fmt.Sprint(i)] = status.SiteCounts{Eligible: 1} // the same label, once truncated
		v.Sites[fmt.Sprint(i, " ", strings.Repeat("\xff\"\n", 250))] = status.SiteCounts{Ineligible: 1, Excluded: 1}
	}
	body := scrape(t, v)
	if len(body) > 100<<10 {
		t.Errorf("%d bytes", len(body))
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	total := make(map[string]float64)
	for _, family := range []string{"zkelectd_members", "zkelectd_excluded_members"} {
		series := families[family].GetMetric()
		if len(series) > 2*(maxSites(1)+1) {
			t.Errorf("%s has %d series", family, len(series))
		}
		for _, m := range series {
			key := family
			for _, l := range m.GetLabel() {
				if len(l.GetValue()) > maxLabel {
					t.Errorf("a label of %d bytes", len(l.GetValue()))
				}
				if l.GetName() == "eligible" {
					key += " " + l.GetValue()
				}
			}
			total[key] += m.GetGauge().GetValue()
		}
	}
	if total["zkelectd_members true"] != forged+3 || total["zkelectd_members false"] != forged+3 || total["zkelectd_excluded_members"] != forged+1 {
		t.Errorf("the totals are %v", total)
	}
	for _, want := range []string{
		`zkelectd_members{eligible="false",group="c",site="here"} 1`, `zkelectd_members{eligible="false",group="c",site="there"} 2`, `zkelectd_members{eligible="true",group="c",site="dc1"} 2`,
	} {
		if !strings.Contains(body, "\n"+want+"\n") {
			t.Errorf("no %s", want)
		}
	}
}

// A forged member may be elected until its takeover is overdue. The label of its site must not be computed for each comparison.
func TestLongElectedSiteDoesNotDelayScrapes(t *testing.T) {
	s := groupData{maxSites: 64}
	s.ElectedSite = strings.Repeat("é", 100_000)
	s.Sites = map[string]status.SiteCounts{s.ElectedSite: {Eligible: 1}}
	for i := range 3000 {
		s.Sites[fmt.Sprint(i)] = status.SiteCounts{Eligible: 2}
	}
	began := time.Now()
	list := sites(s)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	if len(list) != s.maxSites+1 || !slices.ContainsFunc(list, func(at siteMembers) bool { return at.label == label(s.ElectedSite) }) {
		t.Errorf("%d sites", len(list))
	}
}
