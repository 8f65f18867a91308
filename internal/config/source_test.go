package config

import (
	"errors"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

// With policy.source: group no source of a setting may have a policy, of which nothing would come.
func TestAPolicyOfTheGroupIsInNoFile(t *testing.T) {
	const reason = "policy.sites: is not read, because policy.source is group: remove it, and use 'zkelectd policy edit' to change the policy of the group"
	for text, want := range map[string]string{
		"policy: {source: group}":                                                          "",
		"policy: {source: group, exec: [/bin/rank]}":                                       "",
		"policy: {source: group}\nscore: {at_election: true, exec: [a]}":                   "", // this host answers
		"policy: {source: files, sites: {dc1: 1}}":                                         "",
		"policy:\n  source: group\n  sites: {dc1: 1}":                                      ":3: " + reason,
		"policy: {source: group, failback: manual}":                                        ":1: policy.failback: is not read",
		"policy: {source: groups}":                                                         `policy.source: "groups" is not one of files, group; did you mean group?`,
		"slots: {count: 2}\nchild: {command: [a]}\npolicy: {source: group, failback: 30s}": ":3: policy.failback: is not read",
	} {
		path := file(t, text)
		if _, err := Load(Sources{File: path}); err == nil != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	_, err := Load(Sources{File: file(t, "policy: {source: group}"), Env: []string{"ZKELECTD_POLICY_TYPE=first"}})
	if err == nil || !strings.HasPrefix(err.Error(), "ZKELECTD_POLICY_TYPE: policy.type: is not read") {
		t.Errorf("the environment: %v", err)
	}
}

// A group file says for itself that the group has the policy: that of the defaults is for other groups then.
func TestAPolicyOfTheGroupIsNotThatOfTheDefaults(t *testing.T) {
	h := newHost(t, "defaults: {policy: {type: first, sites: {dc1: 1}}}\n", map[string]string{"a": "policy: {source: group}\n", "b": "{}\n"})
	host := h.load()
	if a, b := host.Groups[0].Config, host.Groups[1].Config; a.Rules().Digest() != defaults().Rules().Digest() || b.Policy.Type != "first" {
		t.Errorf("%+v, %+v", a.Policy, b.Policy)
	}
	h.put("a.yaml", "policy: {source: group, type: first}\n")
	_, err := LoadHost(Sources{File: h.main})
	if err == nil || !strings.Contains(err.Error(), "a.yaml:1: policy.type: is not read") || !strings.Contains(err.Error(), "'zkelectd policy edit -g a'") {
		t.Errorf("%v", err)
	}
	h.setMain("defaults: {policy: {source: group, type: first}}\n")
	h.put("a.yaml", "{}\n")
	if _, err := LoadHost(Sources{File: h.main}); err == nil || !strings.Contains(err.Error(), "z.yaml:2: policy.type: is not read") {
		t.Errorf("in the defaults: %v", err)
	}
}

// What check --print prints, and what a crashed daemon runs with, can be read again.
func TestTheSettingsOfAPolicyOfTheGroupCanBeRead(t *testing.T) {
	for _, text := range []string{"policy: {source: group}\n", "policy: {source: group, exec: [/bin/rank]}\nslots: {count: 2}\nchild: {command: [a]}\n"} {
		path := file(t, text)
		h, err := LoadHost(Sources{File: path})
		if err != nil {
			t.Fatal(err)
		}
		again := mustLoad(t, Sources{File: file(t, h.YAML())})
		if reload, restart := Diff(h.Config, again); len(reload)+len(restart) > 0 {
			t.Errorf("%v %v differ", reload, restart)
		}
		checkBundle(t, h)
	}
}

// A policy as an editor shows it is the same policy, and each setting has its documentation.
func TestDescribedRulesAreTheSame(t *testing.T) {
	of := mustLoad(t, Sources{File: file(t, "policy: {type: first, sites: {dc1: 2}, filter: ['member.id != \"a\"']}\nfailsafe: {enabled: true, max: 1m}\n")}).Rules()
	text := DescribedRulesYAML(of)
	got, err := defaults().ParseRules("policy.yaml", []byte(text))
	if err != nil || got.Rules().Digest() != of.Digest() {
		t.Errorf("%v, %+v", err, got.Rules())
	}
	for _, k := range Keys() {
		if words := strings.Fields(k.Doc); ofRules(k.Name) != strings.Contains(strings.Join(strings.Fields(strings.ReplaceAll(text, "# ", "")), " "), strings.Join(words, " ")) {
			t.Errorf("%s: whether its documentation is there is wrong:\n%s", k.Name, text)
		}
	}
	for _, line := range strings.Split(text, "\n") {
		if len(line) > 100 {
			t.Errorf("%d bytes: %s", len(line), line)
		}
	}
}

// An edited policy is checked as a file is; what concerns this host alone is not checked, and settings that are gone
// have their defaults.
func TestParseRules(t *testing.T) {
	base := mustLoad(t, Sources{File: file(t, "policy: {type: first, hysteresis: 3}\n")})
	got, err := base.ParseRules("f", []byte("policy: {type: exec}\n"))
	if err != nil || got.Policy.Type != "exec" || got.Policy.Hysteresis != 20 {
		t.Errorf("%v, %+v", err, got.Policy)
	}
	for text, want := range map[string]string{
		"policy: {typ: first}":                  "f:1: policy.typ: is not a setting; did you mean policy.type?",
		"# x\npolicy: {type: firts}":            `f:2: policy.type: "firts" is not a policy`,
		"policy: {exec: [a]}":                   "f:1: policy.exec: is not a part of the policy: it is in the files of the hosts",
		"policy: {source: files}":               "f:1: policy.source: is not a part of the policy",
		"node: {id: n1}":                        "f:1: node.id: is not a part of the policy",
		"policy: {filter: ['member.sit == 1']}": "f:1: policy.filter: [0]",
		"failsafe: {max: 1m}":                   "f:1: failsafe.max: has no effect: set failsafe.enabled as well",
		"policy: [":                             "f: is not YAML",
		"{}\n---\n{}":                           "f: contains more than one YAML document",
	} {
		if _, err := base.ParseRules("f", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	for _, text := range []string{"", "# only\n\n# comments\n", "~"} {
		if _, err := base.ParseRules("f", []byte(text)); !errors.Is(err, ErrNoRules) {
			t.Errorf("%q: %v", text, err)
		}
	}
	slotted := defaults()
	slotted.Slots.Count = 2
	if got, err := slotted.ParseRules("f", []byte("{}")); err != nil || got.Rules().Failback != "30s" {
		t.Errorf("with slots: %v, %+v", err, got.Rules())
	}
	if got := defaults().WithRules(cluster.Rules{Type: "first"}); got.Policy.LeftToGroup() {
		t.Error("the default of policy.source is group")
	}
}
