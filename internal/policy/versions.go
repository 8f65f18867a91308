package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"zkelectd/internal/cluster"
)

const (
	newestPrefix = "newest:"
	oldestPrefix = "oldest:"
)

// checkLabel checks the label of a ranker by versions.
func checkLabel(key, label string) error {
	if label == "" || strings.TrimSpace(label) != label {
		return fmt.Errorf("%s: %q is not a label of nodes, as in newest:version", key, label)
	}
	return nil
}

// VersionLabels returns the labels whose versions decide by these rules.
func VersionLabels(rules cluster.Rules) (labels []string) {
	for _, name := range rules.Rank {
		for _, prefix := range []string{newestPrefix, oldestPrefix} {
			if label, ok := strings.CutPrefix(name, prefix); ok && !slices.Contains(labels, label) {
				labels = append(labels, label)
			}
		}
	}
	return labels
}

// versionRanker ranks by the version in a label. Equal versions are equal, and no version comes last.
func versionRanker(prefix, label string) ranker {
	return ranker{prefix + label, func(in Input) scorer {
		var all []string
		for i := range in.Members {
			if v := in.Members[i].Node.Record.Labels[label]; v != "" {
				all = append(all, v)
			}
		}
		slices.SortFunc(all, compareVersions)
		all = slices.CompactFunc(all, func(a, b string) bool { return compareVersions(a, b) == 0 })
		return func(m *cluster.Member) (float64, string) {
			v := m.Node.Record.Labels[label]
			if v == "" {
				return unknownScore, "no label " + label
			}
			at, _ := slices.BinarySearchFunc(all, v, compareVersions)
			if prefix == oldestPrefix {
				at = -at
			}
			return 0 + float64(at), label + " " + v
		}
	}}
}

// compareVersions compares versions as people read them: numbers as numbers, and what follows a hyphen, as in
// 2.0.0-rc1, comes before the version itself. What follows a plus says how something was built, and does not count.
func compareVersions(a, b string) int {
	x, early := splitVersion(a)
	y, earlyToo := splitVersion(b)
	if c := cluster.CompareNodes(x, y); c != 0 {
		return c
	}
	if (early == "") != (earlyToo == "") {
		return cmp.Compare(len(earlyToo), len(early)) // the one without comes last
	}
	return cluster.CompareNodes(early, earlyToo)
}

func splitVersion(text string) (version, early string) {
	text, _, _ = strings.Cut(strings.TrimPrefix(text, "v"), "+")
	version, early, _ = strings.Cut(text, "-")
	return version, early
}
