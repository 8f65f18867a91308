package web

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"zkelectd/internal/operator/status"
)

// maxLabel is the maximum length of a label in bytes, and the same as for a site in a configuration.
const maxLabel = 128

// maxSites returns the number of sites of a group that have their own series. Each member sets its own site, so anyone
// who can register members could create any number of time series otherwise.
func maxSites(groups int) int { return max(16, min(64, 1024/max(1, groups))) }

// otherSites is the label of the sites that are counted together. The name of a site has no slash.
const otherSites = "/other"

// label returns text as a label value: valid UTF-8, printable, and at most maxLabel bytes.
func label(text string) string {
	const much = 8 * maxLabel // enough for any label; text may be a megabyte
	text = status.Printable(strings.ToValidUTF8(text[:min(len(text), much)], "?"))
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

// siteMembers has the numbers of members at one site, or at all others.
type siteMembers struct {
	label string
	status.SiteCounts
}

// sites returns the members by site; those beyond the limit are counted together as otherSites. It lists this daemon's
// site and the leader's first, then those with the most eligible members.
func sites(g groupData) (list []siteMembers) {
	counts := make(map[string]status.SiteCounts)
	for name, n := range g.Sites {
		l := label(name) // several sites may have the same label
		counts[l] = sum(counts[l], n)
	}
	for l, n := range counts {
		list = append(list, siteMembers{l, n})
	}
	kept := []string{label(g.ElectedSite), label(g.Site)}
	rank := func(l string) int { return slices.Index(kept, l) }
	slices.SortFunc(list, func(a, b siteMembers) int {
		return cmp.Or(cmp.Compare(rank(b.label), rank(a.label)), cmp.Compare(b.Eligible, a.Eligible),
			cmp.Compare(a.label, b.label))
	})
	if limit := g.maxSites; len(list) > limit {
		other := siteMembers{label: otherSites}
		for _, at := range list[limit:] {
			other.SiteCounts = sum(other.SiteCounts, at.SiteCounts)
		}
		list = list[:limit]
		if i := slices.IndexFunc(list, func(at siteMembers) bool { return at.label == otherSites }); i >= 0 {
			// a member claims this name
			list[i].SiteCounts = sum(list[i].SiteCounts, other.SiteCounts)
		} else {
			list = append(list, other)
		}
	}
	return list
}

func sum(a, b status.SiteCounts) status.SiteCounts {
	return status.SiteCounts{Eligible: a.Eligible + b.Eligible, Ineligible: a.Ineligible + b.Ineligible,
		Excluded: a.Excluded + b.Excluded}
}
