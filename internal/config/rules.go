package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
)

// Rules returns the part of the configuration that applies to the whole group once it is published.
func (c Config) Rules() cluster.Rules {
	r := c.Policy.Rules
	if c.Failsafe.Enabled {
		r.Failsafe = cluster.FailsafeRules{Enabled: true, Max: cluster.Duration(c.Failsafe.Max)}
	}
	if c.Score.AtElection {
		r.RollCall = cluster.RollCallRules{Enabled: true, Timeout: cluster.Duration(c.Score.Timeout)}
	}
	return r
}

// WithRules is the inverse of Rules: it returns c with the settings that the rules determine.
func (c Config) WithRules(r cluster.Rules) Config {
	c.Failsafe.Enabled, c.Failsafe.Max = r.Failsafe.Enabled, time.Duration(r.Failsafe.Max)
	if c.Score.AtElection = r.RollCall.Enabled; r.RollCall.Enabled {
		c.Score.Timeout = r.RollCall.Wait()
	}
	r.Failback, r.SpreadBy = cmp.Or(r.Failback, cluster.FailbackImmediate), cmp.Or(r.SpreadBy, cluster.SpreadByHost)
	r.ConfirmAfter = cmp.Or(r.ConfirmAfter, cluster.ConfirmNever)
	r.Failsafe, r.RollCall = cluster.FailsafeRules{}, cluster.RollCallRules{}
	c.Policy.Rules = r
	return c
}

// ofRules reports whether a key is one from which Rules are derived.
func ofRules(key string) bool {
	return onlyOfRules(key) || slices.Contains([]string{failsafeEnabled, failsafeMax, scoreAtElection, scoreTimeout}, key)
}

// onlyOfRules reports whether a key is one from which Rules are derived, and nothing else.
func onlyOfRules(key string) bool {
	return strings.HasPrefix(key, "policy.") && key != "policy.exec" && key != policySource
}

const policySource = "policy.source"

// refuseRules reports settings of the policy in the sources of a group whose policy is in ZooKeeper alone. values are
// the settings that were given, and name is the group's in a command; empty if it needs none.
func (c *Config) refuseRules(values map[string]found, name string, errs *Errors) {
	for key, f := range values {
		if c.Policy.LeftToGroup() && onlyOfRules(key) {
			errs.add(f.source, key, "is not read, because policy.source is group: remove it, and use %s to change "+
				"the policy of the group",
				cluster.InGroup("'zkelectd policy edit'", name))
		}
	}
}

// withoutReplacedRules returns inherited settings without the policy, for a group whose own file says that it is in
// ZooKeeper alone.
func withoutReplacedRules(inherited, own map[string]found) map[string]found {
	if own[policySource].value != "group" {
		return inherited
	}
	rest := maps.Clone(inherited)
	maps.DeleteFunc(rest, func(key string, _ found) bool { return onlyOfRules(key) })
	return rest
}

func defaults() Config {
	c, err := merged(nil)
	if err != nil {
		panic(fmt.Sprintf("config: the defaults have the wrong type: %v", err))
	}
	return c
}

// RulesYAML returns the rules as the part of a configuration file that sets them.
func RulesYAML(r cluster.Rules) string {
	return yamlOf(defaults().WithRules(r).settings(), nil, ofRules)
}

// DescribedRulesYAML is [RulesYAML] with the documentation of each setting in front of it.
func DescribedRulesYAML(r cluster.Rules) string {
	return yamlOf(defaults().WithRules(r).settings(), func(k Key) string { return wrapped(k.Doc) }, ofRules)
}

// wrapped returns a text in lines that are not too long for a terminal.
func wrapped(text string) string {
	const width = 90
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+len(word) >= width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return strings.Join(append(lines, line), "\n")
}

// ErrNoRules is the error for a text that has no rules at all.
var ErrNoRules = errors.New("is empty: it has no policy")

// ParseRules returns c with the rules in data, the content of a file that has nothing else: [DescribedRulesYAML] as
// somebody has edited it. A setting that it does not have gets its default. If it fails, the error is [ErrNoRules] or
// [Errors].
func (c Config) ParseRules(file string, data []byte) (Config, error) {
	var errs Errors
	root := rootNode(file, data, &errs)
	if len(errs) > 0 {
		return c, errs
	} else if root == nil || root.Tag == "!!null" {
		return c, ErrNoRules
	}
	w := newWalker(file, &errs)
	w.refuse = func(k Key) string {
		if !ofRules(k.Name) {
			return "is not a part of the policy: it is in the files of the hosts"
		}
		return ""
	}
	w.section("", root)
	c = c.WithRules(defaults().Rules()).with(w.out)
	c.completeDefaults(w.out)
	c.check(func(key, format string, args ...any) {
		if ofRules(key) { // the rest is about this host alone
			errs.add(cmp.Or(w.out[key].source, file), key, format, args...)
		}
	})
	if len(errs) > 0 {
		return c, errs.sorted()
	}
	return c, nil
}

// RulesDiff returns the differences between rules, each as "key: before -> after".
func RulesDiff(before, after cluster.Rules) []string {
	a, b := defaults().WithRules(before).settings(), defaults().WithRules(after).settings()
	var lines []string
	for _, k := range Keys() {
		x, y := a[k.Name], b[k.Name]
		if !ofRules(k.Name) || same(x, y) {
			continue
		}
		lines = append(lines, fmt.Sprintf("%s: %s -> %s", k.Name, inline(x), inline(y)))
	}
	return slices.Clip(lines)
}

// Merge is the outcome of [MergeRules].
type Merge struct {
	// Rules are those in force, with what has changed in the file.
	Rules cluster.Rules
	// Conflicts are keys that have changed in the file, and to another value in force. Unmerged are those that have
	// not changed in the file, and are different in force.
	Conflicts, Unmerged []Difference
}

// Difference is a key whose value in a file is not the one in force.
type Difference struct{ Key, File, InForce string }

func (d Difference) String() string {
	return fmt.Sprintf("%s: the file has %s, in force is %s", d.Key, d.File, d.InForce)
}

// MergeRules is a three-way merge: it applies to the rules in force what has changed in a file. It compares key by
// key, and within a map item by item; a list is one value. While failsafe mode is off, its limit is no rule, and
// while nobody calls the roll, neither is its timeout: where it was changed meanwhile, the whole can still be turned
// off.
func MergeRules(before, after, inForce cluster.Rules) Merge {
	m := Merge{Rules: inForce}
	result, taken := defaults().WithRules(inForce), false
	b, a, f := defaults().WithRules(before).settings(), defaults().WithRules(after).settings(), result.settings()
	merge := func(key string, b, a, f any) (take bool) {
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
		if !ofRules(k.Name) || k.Name == failsafeMax && !result.Failsafe.Enabled ||
			k.Name == scoreTimeout && !result.Score.AtElection {
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
