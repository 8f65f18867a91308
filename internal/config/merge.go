package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"zkelectd/internal/cluster"
)

// Merge is the outcome of [MergeRules].
type Merge struct {
	// Rules are those in force, with what has changed in the file.
	Rules cluster.Rules
	// Conflicts are keys that have changed in the file, and to another value in force. Unmerged are those that have not changed in the
	// file, and are different in force.
	Conflicts, Unmerged []Difference
}

// Difference is a key whose value in a file is not the one in force.
type Difference struct{ Key, File, InForce string }

func (d Difference) String() string {
	return fmt.Sprintf("%s: the file has %s, in force is %s", d.Key, d.File, d.InForce)
}

// MergeRules is a three-way merge: it applies to the rules in force what has changed in a file. It compares key by key, and within a map
// item by item; a list is one value. While failsafe mode is off, its limit is no rule, and while nobody calls the roll, neither is its timeout:
// where it was changed meanwhile, the whole can still be turned off.
func MergeRules(before, after, inForce cluster.Rules) Merge {
	m := Merge{Rules: inForce}
	result, taken := defaults().WithRules(inForce), false
	b, a, f := defaults().WithRules(before).settings(), defaults().WithRules(after).settings(), result.settings()
	merge := func(key string, b, a, f any) (take bool) {
		same := func(x, y any) bool { return reflect.DeepEqual(x, y) || x != nil && y != nil && empty(x) && empty(y) }
		switch {
		case same(a, f):
		case same(b, a):
			m.Unmerged = append(m.Unmerged, Difference{key, inlineItem(a), inlineItem(f)})
		case same(b, f):
			taken = true
			return true
		default:
			m.Conflicts = append(m.Conflicts, Difference{key, inlineItem(a), inlineItem(f)})
		}
		return false
	}
	for _, k := range Keys() {
		if !ofRules(k.Name) || k.Name == failsafeMax && !result.Failsafe.Enabled || k.Name == scoreTimeout && !result.Score.AtElection {
			continue // then the rules have none: Rules leaves it out
		}
		sites, isMap := f[k.Name].(map[string]int)
		if !isMap {
			if merge(k.Name, b[k.Name], a[k.Name], f[k.Name]) {
				result = result.with(map[string]found{k.Name: {value: a[k.Name]}})
			}
			continue
		}
		old, own := b[k.Name].(map[string]int), a[k.Name].(map[string]int)
		merged := maps.Clone(sites)
		if merged == nil {
			merged = make(map[string]int)
		}
		all := slices.Concat(slices.Collect(maps.Keys(old)), slices.Collect(maps.Keys(own)), slices.Collect(maps.Keys(sites)))
		slices.Sort(all)
		for _, site := range slices.Compact(all) {
			if !merge(k.Name+"."+site, item(old, site), item(own, site), item(sites, site)) {
				continue
			}
			if value, ok := own[site]; ok {
				merged[site] = value
			} else {
				delete(merged, site)
			}
		}
		result = result.with(map[string]found{k.Name: {value: merged}})
	}
	if taken {
		m.Rules = result.Rules()
	}
	return m
}

// item returns an item of a map; nil if there is none.
func item(m map[string]int, key string) any {
	if value, ok := m[key]; ok {
		return value
	}
	return nil
}

func inlineItem(v any) string {
	if v == nil {
		return "no value"
	}
	return inline(v)
}

// DescribeDifferences returns differences as one text.
func DescribeDifferences(list []Difference) string {
	var texts []string
	for _, d := range list {
		texts = append(texts, d.String())
	}
	return strings.Join(texts, "; ")
}
