package httpapi

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"zkelectd/internal/status"
)

// Each member names its own site, so a stranger who can register could make the metrics grow without end. maxSites bounds the
// sites that have series of their own; maxLabel bounds a label, in bytes, and is what a configuration allows for a site.
const (
	maxSites = 64
	maxLabel = 128
)

// otherSites is the label of the sites that are counted together. A site's name has no slash.
const otherSites = "/other"

// label returns the text as Prometheus takes it: valid UTF-8, not longer than maxLabel, and printable, for people read the
// metrics too.
func label(text string) string {
	const much = 8 * maxLabel // far more than is shown; it may be a megabyte
	text = status.Plain(strings.ToValidUTF8(text[:min(len(text), much)], "?"))
	if len(text) <= maxLabel {
		return text
	}
	const mark = "…"
	end := maxLabel - len(mark)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}

// site is the members of one site, or of all others.
type site struct {
	label string
	status.SiteCounts
}

// sites returns the members by site, and how many sites are counted together. The own site and the leader's are never left
// out, then those with the most members that may lead come first.
func sites(s sight) (list []site, omitted int) {
	counts := make(map[string]status.SiteCounts)
	for name, n := range s.Sites {
		l := label(name) // the same for several, perhaps
		counts[l] = sum(counts[l], n)
	}
	for l, n := range counts {
		list = append(list, site{l, n})
	}
	kept := []string{label(s.ElectedSite), label(s.Site)}
	rank := func(l string) int { return slices.Index(kept, l) }
	slices.SortFunc(list, func(a, b site) int {
		return cmp.Or(cmp.Compare(rank(b.label), rank(a.label)), cmp.Compare(b.Eligible, a.Eligible), cmp.Compare(a.label, b.label))
	})
	if len(list) > maxSites {
		other := site{label: otherSites}
		for _, at := range list[maxSites:] {
			other.SiteCounts = sum(other.SiteCounts, at.SiteCounts)
			omitted++
		}
		list = list[:maxSites]
		if i := slices.IndexFunc(list, func(at site) bool { return at.label == otherSites }); i >= 0 { // a forged one
			list[i].SiteCounts = sum(list[i].SiteCounts, other.SiteCounts)
		} else {
			list = append(list, other)
		}
	}
	return list, omitted
}

func sum(a, b status.SiteCounts) status.SiteCounts {
	return status.SiteCounts{Eligible: a.Eligible + b.Eligible, Ineligible: a.Ineligible + b.Ineligible, Excluded: a.Excluded + b.Excluded}
}
