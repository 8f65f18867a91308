package web

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/test/testhelper"
)

// someTotals returns counters with values.
func someTotals() status.Totals {
	t := status.Totals{
		Transitions: map[status.Transition]uint64{{Cause: "failure", Result: "ready"}: 2, {Cause: "overdue", Result: "failed"}: 1},
		Failsafe:    status.FailsafeCounts{Rounds: 5, Extended: 4, Promised: 9, Refused: 1},
		Sessions:    3, SessionsLost: 2, Reconnects: 5, HookFailures: 3, Restarts: 4, Reloaded: time.Unix(1700000000, 0), ReloadFailed: true, Pending: 2,
		Certificate: "/a.crt", CertificateEnd: time.Unix(1800000000, 0), RenewBy: time.Unix(1, 0),
	}
	t.ToReady.Observe(30 * time.Millisecond)
	t.Leaderless.Observe(4 * time.Second)
	t.Reads.Observe(time.Millisecond)
	return t
}

// leadingElector returns the view of a leader that is also the elector.
func leadingElector() status.Daemon {
	v := leader()
	v.Elector, v.Paused, v.PausedHard, v.Child, v.Blocked, v.Drift, v.SlotsDrift = true, true, true, true, "paused", "it differs", "they differ"
	v.Unkillable, v.Newer, v.AwaitsApproval, v.ApplicationLeases = "pid 7", "/c/leader", true, 2
	v.WatchdogDevice = &status.WatchdogDevice{State: status.DeviceArmed}
	v.Standby = &cluster.Standby{State: cluster.StandbyWarm}
	v.Failsafe = &status.Failsafe{Enabled: true, Active: true, Unready: map[string]string{"b": "no answer"}}
	v.Sites = map[string]status.SiteCounts{"dc1": {Eligible: 2, Ineligible: 1, Excluded: 1}, "d\xffc2": {Eligible: 1}}
	return v
}

func scrape(t *testing.T, v status.Daemon) string {
	t.Helper()
	rec := serveRequest(New(optionsOf(Group{View: func() status.Daemon { return v }, Totals: someTotals})), "GET", "/metrics")
	if rec.Code != 200 {
		t.Fatalf("%d %s", rec.Code, rec.Body)
	}
	return rec.Body.String()
}

// One address cannot keep the others from the metrics.
func TestScrapesOfOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opt := optionsOf(Group{View: standby})
		var hang atomic.Bool
		release := make(chan struct{})
		opt.Totals = func() status.Totals {
			if hang.Load() {
				<-release
			}
			return status.Totals{}
		}
		handler := New(opt)
		get := func(address string) *httptest.ResponseRecorder {
			r := httptest.NewRequest("GET", "/metrics", nil)
			r.RemoteAddr = address + ":1"
			rec := httptest.NewRecorder()
			handler.ServeHTTP(rec, r)
			return rec
		}
		hang.Store(true)
		for range maxScrapes {
			go get("192.0.2.1")
		}
		synctest.Wait()
		hang.Store(false)
		if rec := get("192.0.2.1"); rec.Code != 503 || rec.Header().Get("Retry-After") == "" {
			t.Errorf("the same address: %d", rec.Code)
		}
		if rec := get("192.0.2.2"); rec.Code != 200 {
			t.Errorf("another address: %d %s", rec.Code, rec.Body)
		}
		close(release)
	})
}

func TestMetrics(t *testing.T) {
	silent := standby()
	silent.Elector = true
	silent.Age = cluster.Duration(time.Hour)
	cut, deaf := leadingElector(), leadingElector()
	cut.Connected, deaf.LastResponseAge = false, cluster.Duration(time.Minute)
	observing, ineligible := leadingElector(), leadingElector()
	observing.Note, observing.AwaitsApproval = "policy.observe is set: c would be elected: a is gone", false
	ineligible.Note, ineligible.AwaitsApproval, ineligible.Sites = "no member is eligible: a: unhealthy", false, map[string]status.SiteCounts{"dc1": {Ineligible: 3}}
	hung, dead := stuck(), stuck()
	hung.Child, dead.Child, dead.LeaseRemaining = true, true, 0
	for name, c := range map[string]struct {
		view      status.Daemon
		have, not []string
	}{
		"a leader that elects": {leadingElector(), []string{
			"zkelectd_is_leader{group=\"c\"} 1", "zkelectd_is_elector{group=\"c\"} 1", "zkelectd_lease_remaining_seconds{group=\"c\"} 1.5", "zkelectd_term{group=\"c\"} 7", `zkelectd_state{group="c",state="leading"} 1`,
			`zkelectd_members{eligible="true",group="c",site="dc1"} 2`, `zkelectd_members{eligible="false",group="c",site="dc1"} 1`, `zkelectd_members{eligible="true",group="c",site="d?c2"} 1`,
			`zkelectd_excluded_members{group="c",site="dc1"} 1`, `zkelectd_paused{group="c",mode="soft"} 0`, `zkelectd_paused{group="c",mode="hard"} 1`, "zkelectd_lease_seconds 0.9", "zkelectd_preemption_blocked{group=\"c\"} 1", "zkelectd_no_eligible_members{group=\"c\"} 0",
			`zkelectd_transitions_total{cause="failure",group="c",result="ready"} 2`, `zkelectd_transitions_total{cause="overdue",group="c",result="failed"} 1`,
			`zkelectd_transition_duration_seconds_bucket{group="c",le="0.05"} 1`, `zkelectd_transition_duration_seconds_bucket{group="c",le="0.025"} 0`, `zkelectd_leaderless_duration_seconds_sum{group="c"} 4`,
			`zkelectd_zookeeper_request_duration_seconds_count{operation="read"} 1`, "zkelectd_session_expirations_total 2", "zkelectd_session_reconnects_total 5", "zkelectd_hook_failures_total 3",
			"zkelectd_child_up{group=\"c\"} 1", "zkelectd_child_restarts_total{group=\"c\"} 4", "zkelectd_config_last_reload_successful 0", "zkelectd_config_pending_settings 2", "zkelectd_config_last_reload_success_timestamp_seconds 1.7e+09",
			`zkelectd_certificate_expiry_timestamp_seconds{file="/a.crt"} 1.8e+09`, `zkelectd_certificate_expiring{file="/a.crt"} 1`,
			"zkelectd_policy_drift{group=\"c\"} 1", "zkelectd_slots_drift{group=\"c\"} 1", `zkelectd_group_info{group="c",node="a",root="/c",site="dc1"} 1`, `zkelectd_node_info{node="a",site="dc1"} 1`, `zkelectd_groups{state="leading"} 1`, `zkelectd_failed_transitions_total{group="c"} 1`, `zkelectd_build_info{goversion=`,
			`zkelectd_failsafe_active{group="c"} 1`, `zkelectd_failsafe_ready{group="c"} 0`, `zkelectd_failsafe_member_unready{group="c",member="b"} 1`, `zkelectd_failsafe_rounds_total 5`, `zkelectd_failsafe_extensions_total 4`, `zkelectd_failsafe_replies_total{result="promised"} 9`,
		}, nil},
		"a standby":                                    {standby(), []string{"zkelectd_is_leader{group=\"c\"} 0", "zkelectd_is_elector{group=\"c\"} 0", "zkelectd_session_up 1"}, []string{"zkelectd_members", "zkelectd_paused", "zkelectd_policy_drift", "zkelectd_slots_drift", "zkelectd_failsafe_active", "zkelectd_failsafe_ready"}},
		"a leader that is stuck":                       {stuck(), []string{"zkelectd_is_leader{group=\"c\"} 0", `zkelectd_state{group="c",state="stuck"} 1`, "zkelectd_view_age_seconds 3600", "zkelectd_session_up 0"}, nil},
		"an elector that is stuck":                     {silent, []string{"zkelectd_is_elector{group=\"c\"} 0"}, []string{"zkelectd_paused"}},
		"the child of a stuck daemon during the lease": {hung, []string{"zkelectd_child_up{group=\"c\"} 1"}, nil},
		"the child of a stuck daemon after the lease":  {dead, []string{"zkelectd_child_up{group=\"c\"} 0"}, nil},
		"an elector that is cut off":                   {cut, []string{"zkelectd_is_elector{group=\"c\"} 0", "zkelectd_is_leader{group=\"c\"} 1"}, []string{"zkelectd_members", "zkelectd_paused"}},
		"an elector without responses from ZooKeeper":  {deaf, []string{"zkelectd_is_elector{group=\"c\"} 0"}, []string{"zkelectd_members"}},
		"an elector that elects nobody":                {observing, []string{"zkelectd_no_eligible_members{group=\"c\"} 0"}, nil},
		"an elector without an eligible member":        {ineligible, []string{"zkelectd_no_eligible_members{group=\"c\"} 1"}, nil},
		"before there is a view":                       {status.Daemon{}, []string{`zkelectd_state{group="c",state="connecting"} 1`, "zkelectd_session_up 0"}, nil},
	} {
		body := scrape(t, c.view)
		for _, want := range c.have {
			if !strings.Contains(body, "\n"+want) {
				t.Errorf("%s: no %s in\n%s", name, want, body)
			}
		}
		for _, no := range c.not {
			if strings.Contains(body, no) {
				t.Errorf("%s: %s exists", name, no)
			}
		}
	}
}

// The exported metrics match the table and follow Prometheus' naming conventions.
func TestMetricsFollowConventions(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	opt := optionsOf(Group{View: leadingElector, Totals: someTotals})
	heir := &Group{Name: "d", View: func() status.Daemon {
		v := standby()
		v.Heir, v.IsHeir = "a", true
		return v
	}, Totals: someTotals}
	both := append(opt.Groups(), heir)
	opt.Registry, opt.Groups = registry, func() []*Group { return both }
	New(opt)
	problems, err := testutil.GatherAndLint(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, f := range families {
		i := slices.IndexFunc(metrics, func(m metric) bool { return m.name == f.GetName() })
		if i < 0 {
			t.Errorf("%s is not in the table", f.GetName())
			continue
		}
		seen[f.GetName()] = true
		if kind := strings.ToLower(f.GetType().String()); kind != metrics[i].kind {
			t.Errorf("%s is a %s, but the table says %s", f.GetName(), kind, metrics[i].kind)
		}
	}
	for _, m := range metrics {
		if !seen[m.name] {
			t.Errorf("%s is never exported", m.name)
		}
	}
}

// The reference is generated from the table.
func TestMetricsReference(t *testing.T) {
	var b strings.Builder
	b.WriteString("| metric | labels | meaning |\n| --- | --- | --- |\n")
	for _, m := range metrics {
		labels := strings.Join(m.allLabels(), "`, `")
		if labels != "" {
			labels = "`" + labels + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", m.name, labels, m.help)
		kind := gauge
		switch {
		case strings.HasSuffix(m.name, "_total"):
			kind = counter
		case strings.HasSuffix(m.name, "_duration_seconds"):
			kind = histogram
		}
		if m.kind != kind {
			t.Errorf("%s is a %s: docs/metrics.md says that such a name is that of a %s", m.name, m.kind, kind)
		}
	}
	testhelper.CheckDocument(t, "../../docs/metrics.md", b.String())
}

// A daemon with many groups exports eight series for each of those that it neither leads nor elects, and counts what elections took for all together.
func TestSeriesPerGroupAreBounded(t *testing.T) {
	names := make([]string, 200)
	for i := range names {
		names[i] = fmt.Sprintf("g%03d", i)
	}
	opt := severalGroups(names...)
	for i, g := range opt.Groups() {
		g.Totals = someTotals
		g.View = standby
		if i == 7 {
			g.View = leadingElector
		}
		if i == 8 {
			g.View = func() status.Daemon {
				return status.Daemon{Node: "a", Membership: status.MembershipParked, MembershipReason: "it failed three times"}
			}
		}
	}
	body := serveRequest(New(opt), "GET", "/metrics").Body.String()
	series := make(map[string]int)
	for line := range strings.Lines(body) {
		if _, rest, ok := strings.Cut(line, `group="`); ok {
			name, _, _ := strings.Cut(rest, `"`)
			series[name]++
		}
	}
	if series["g006"] != 8 || series["g008"] != 8 || series["g007"] <= 8 || series["g007"] > 33 || len(series) != len(names)+1 {
		t.Errorf("series: %d of a standby, %d of a parked group, %d of a leader that elects; %d groups", series["g006"], series["g008"], series["g007"], len(series))
	}
	for _, want := range []string{
		`zkelectd_groups{state="standby"} 198`, `zkelectd_groups{state="leading"} 1`, `zkelectd_groups{state="parked"} 1`,
		`zkelectd_is_leader{group="g007"} 1`, `zkelectd_is_leader{group="g006"} 0`, `zkelectd_state{group="g008",state="parked"} 1`,
		`zkelectd_session_up 1`, `zkelectd_transition_duration_seconds_count{group="/all"} 1`, `zkelectd_transitions_total{cause="failure",group="/all",result="ready"} 2`, `zkelectd_node_info{node="a",site="dc1"} 1`,
	} {
		if !strings.Contains(body, "\n"+want+"\n") {
			t.Errorf("no %s", want)
		}
	}
}

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

// An unauthorized client has registered 6,000 members, each on a different site with a long name. The metrics stay
// small, can be parsed, and count what was omitted.
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
