package config

import (
	"strings"
	"testing"
)

func TestCirclesAreRefused(t *testing.T) {
	h := newHost(t, "", map[string]string{
		"a": "policy: {rank: ['with:b', spread]}", "b": "policy:\n  rank: ['with:c/0', spread]", "c": "policy: {apart_strict: [a]}",
		"d": "policy: {rank: ['apart:e', 'with:a']}", "e": "policy: {rank: ['apart:d']}", "f": "{}",
	})
	got := h.fault()
	for _, want := range []string{
		"a.yaml:1: policy.rank: with:b: the groups refer to each other in a circle (a -> b -> c -> a)", "b.yaml:2: policy.rank: with:", "c.yaml:1: policy.apart_strict: with:b",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	if strings.Contains(got, "d.yaml") || strings.Contains(got, "e.yaml") {
		t.Error(got)
	}
	h.put("c.yaml", "{}")
	if names(h.load()) != "a b c d e f" {
		t.Error("refused without a circle")
	}
}

// A reload refuses the file that closes a circle, and no other.
func TestReloadRefusesWhatClosesACircle(t *testing.T) {
	h := newHost(t, "", map[string]string{"a": "{policy: {rank: ['with:b']}, child: {none: true}}", "b": lockOnly, "c": lockOnly})
	running := h.load()
	h.put("b.yaml", "{policy: {rank: ['apart:a']}, child: {none: true}}")
	r := h.reload(running, false)
	if err := r.Refused["b"]; len(r.Refused) != 1 || err == nil || !strings.Contains(err.Error(), "in a circle (a -> b -> a)") {
		t.Errorf("refused: %v", r.Refused)
	}
	if len(r.Changed) != 0 || names(r.Host) != "a b c" {
		t.Errorf("%+v", r)
	}
}

func TestWeightAndMaxLeaders(t *testing.T) {
	c := mustLoad(t, Sources{File: file(t, "node: {weight: 2.5, max_leaders: 7}")})
	if c.Node.Weight != 2.5 || c.Node.MaxLeaders != 7 {
		t.Errorf("%+v", c.Node)
	}
	for text, want := range map[string]string{
		"node: {weight: 0}":       "node.weight: 0 is not between 0.001 and 1000",
		"node: {weight: .inf}":    `node.weight: ".inf" is not a number, as in 1.5`,
		"node: {weight: 1e4}":     "node.weight: 10000 is not between",
		"node: {weight: [1]}":     "node.weight: must be a number",
		"node: {max_leaders: -1}": "node.max_leaders: must not be negative",
		"node: {weight: nan}":     `node.weight: "nan" is not a number`,
	} {
		if _, err := Load(Sources{File: file(t, text)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
