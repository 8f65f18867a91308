package config

import (
	"reflect"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

// What has changed in a file is applied to the rules in force; older values in the rest of the file change nothing.
func TestMergeRules(t *testing.T) {
	const old = "sites: {dc1: 200, dc2: 100}, filter: ['true']"
	for name, c := range map[string]struct {
		before, after, inForce, want string
		conflicts, unmerged          string
	}{
		"nothing":               {old, old, old, old, "", ""},
		"a change":              {old, old + ", failback: 5m", old, old + ", failback: 5m", "", ""},
		"a stale file":          {old, old + ", failback: 5m", "sites: {dc1: 300, dc2: 100}, filter: ['true']", "sites: {dc1: 300, dc2: 100}, filter: ['true'], failback: 5m", "", "policy.sites.dc1: the file has 200, in force is 300"},
		"a stale file, as was":  {old, old, "sites: {dc1: 300, dc2: 100}, filter: ['true']", "sites: {dc1: 300, dc2: 100}, filter: ['true']", "", "policy.sites.dc1: the file has 200, in force is 300"},
		"two sites":             {old, "sites: {dc1: 200, dc2: 50}, filter: ['true']", "sites: {dc1: 300, dc2: 100}, filter: ['true']", "sites: {dc1: 300, dc2: 50}, filter: ['true']", "", "policy.sites.dc1: the file has 200, in force is 300"},
		"a site added":          {old, "sites: {dc1: 200, dc2: 100, dc3: 1}, filter: ['true']", old, "sites: {dc1: 200, dc2: 100, dc3: 1}, filter: ['true']", "", ""},
		"a site removed":        {old, "sites: {dc1: 200}, filter: ['true']", old, "sites: {dc1: 200}, filter: ['true']", "", ""},
		"all sites removed":     {old, "filter: ['true']", old, "filter: ['true']", "", ""},
		"the first sites":       {"", "sites: {dc1: 0}", "", "sites: {dc1: 0}", "", ""},
		"the same change":       {old, "sites: {dc1: 300, dc2: 100}, filter: ['true']", "sites: {dc1: 300, dc2: 100}, filter: ['true']", "sites: {dc1: 300, dc2: 100}, filter: ['true']", "", ""},
		"a conflict":            {old, "sites: {dc1: 250, dc2: 100}, filter: ['true']", "sites: {dc1: 300, dc2: 100}, filter: ['true']", "sites: {dc1: 300, dc2: 100}, filter: ['true']", "policy.sites.dc1: the file has 250, in force is 300", ""},
		"removed and changed":   {old, "sites: {dc2: 100}, filter: ['true']", "sites: {dc1: 300, dc2: 100}, filter: ['true']", "sites: {dc1: 300, dc2: 100}, filter: ['true']", "policy.sites.dc1: the file has no value, in force is 300", ""},
		"changed and removed":   {old, "sites: {dc1: 250, dc2: 100}, filter: ['true']", "sites: {dc2: 100}, filter: ['true']", "sites: {dc2: 100}, filter: ['true']", "policy.sites.dc1: the file has 250, in force is no value", ""},
		"a list is one value":   {old, "sites: {dc1: 200, dc2: 100}, filter: ['true', 'true']", "sites: {dc1: 200, dc2: 100}", "sites: {dc1: 200, dc2: 100}", "policy.filter: the file has ['true', 'true'], in force is []", ""},
		"a filter that is gone": {old, "sites: {dc1: 200, dc2: 100}", old, "sites: {dc1: 200, dc2: 100}", "", ""},
		"a type":                {"type: priority", "type: first", "type: priority, hysteresis: 30", "type: first, hysteresis: 30", "", "policy.hysteresis: the file has 20, in force is 30"},
	} {
		rules := func(text string) Config { return mustLoad(t, Sources{File: file(t, "policy: {"+text+"}")}) }
		m := MergeRules(rules(c.before).Rules(), rules(c.after).Rules(), rules(c.inForce).Rules())
		conflicts, unmerged := strings.ReplaceAll(DescribeDifferences(m.Conflicts), `"`, "'"), DescribeDifferences(m.Unmerged)
		if want := rules(c.want).Rules(); m.Rules.Digest() != want.Digest() || conflicts != c.conflicts || unmerged != c.unmerged {
			t.Errorf("%s: %+v, conflicts %q, unmerged %q, want %+v", name, m.Rules, conflicts, unmerged, want)
		}
	}
}

// Failsafe mode is a part of the policy.
func TestMergeRulesOfFailsafeMode(t *testing.T) {
	off := mustLoad(t, Sources{}).Rules()
	on := off
	on.Failsafe.Enabled = true
	inForce := off
	inForce.Hysteresis = 50
	m := MergeRules(off, on, inForce)
	want := inForce
	want.Failsafe.Enabled = true
	if m.Rules.Digest() != want.Digest() || len(m.Conflicts) != 0 {
		t.Errorf("%+v", m)
	}
	if m := MergeRules(on, on, off); !reflect.DeepEqual(m.Rules, off) || len(m.Unmerged) != 1 {
		t.Errorf("%+v", m)
	}
}

// Failsafe mode can be turned off whatever its limit is in force; while it is on, the limit is merged like another key.
func TestMergeRulesOfTheFailsafeLimit(t *testing.T) {
	const off = "{}"
	on := func(limit string) string { return "failsafe: {enabled: true, max: " + limit + "}\n" }
	for name, c := range map[string]struct {
		before, after, inForce, want string
		conflicts, unmerged          string
	}{
		"off, and another limit":   {on("5m"), off, on("10m"), off, "", ""},
		"off, and off":             {on("5m"), off, off, off, "", ""},
		"a limit, and off":         {on("5m"), on("8m"), off, off, "", "failsafe.enabled: the file has true, in force is false"},
		"on":                       {off, on("5m"), off, on("5m"), "", ""},
		"on, and another limit":    {off, on("5m"), on("10m"), on("10m"), "failsafe.max: the file has 5m0s, in force is 10m0s", ""},
		"a limit":                  {on("5m"), on("8m"), on("5m"), on("8m"), "", ""},
		"a limit, and another one": {on("5m"), on("8m"), on("10m"), on("10m"), "failsafe.max: the file has 8m0s, in force is 10m0s", ""},
	} {
		rules := func(text string) cluster.Rules { return mustLoad(t, Sources{File: file(t, text)}).Rules() }
		m := MergeRules(rules(c.before), rules(c.after), rules(c.inForce))
		conflicts, unmerged := DescribeDifferences(m.Conflicts), DescribeDifferences(m.Unmerged)
		if m.Rules.Digest() != rules(c.want).Digest() || conflicts != c.conflicts || unmerged != c.unmerged {
			t.Errorf("%s: %+v, conflicts %q, unmerged %q, want %+v", name, m.Rules, conflicts, unmerged, rules(c.want))
		}
	}
}
