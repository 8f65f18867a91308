package status

import (
	"slices"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

// Each damaged record is described with the consequences and what to do.
func TestDamageSaysWhatToDo(t *testing.T) {
	read := func(leader, elected, policy, control string) cluster.Snapshot {
		return cluster.Snapshot{
			Fence:   cluster.ReadFence("/c/leader", []byte(leader), cluster.Stat{}, true),
			Elected: cluster.ReadStored[cluster.Elected]("/c/leader/elected", []byte(elected), cluster.Stat{}, elected != ""),
			Policy:  cluster.ReadStored[cluster.Policy]("/c/policy", []byte(policy), cluster.Stat{}, policy != ""),
			Control: cluster.ReadStored[cluster.Control]("/c/control", []byte(control), cluster.Stat{}, control != ""),
		}
	}
	for name, c := range map[string]struct {
		s       cluster.Snapshot
		want    []string // in the only problem
		without string
	}{
		"a new group":   {s: read("", "", "", "")},
		"damaged fence": {read("x", "", "", ""), []string{"znode /c/leader "}, "upgrade"},
		"newer fence":   {read(`{"v":3}`, "", "", ""), []string{"upgrade this host, or stop its daemon: until then it neither elects nor takes over"}, "repair"},
		"newer elected": {read("", `{"v":2}`, "", ""), []string{"znode /c/leader/elected", "neither elects nor takes over"}, "repair"},
		"policy":        {read("", "", "x", ""), []string{"the policy is damaged", "policy does not replace a healthy leader", "'zkelectd repair policy -g c'"}, "upgrade"},
		"newer policy":  {read("", "", `{"v":2}`, ""), []string{"upgrade this host: until then policy does not replace a healthy leader"}, "repair"},
		"control":       {read("", "", "", "x"), []string{"policy does not replace a healthy leader", "'zkelectd repair control -g c'"}, "upgrade"},
		"newer control": {read("", "", "", `{"v":2}`), []string{"upgrade this host: until then policy does not replace a healthy leader"}, "repair"},
	} {
		g := Of("c", "/own/x", c.s)
		got := g.Problems
		if len(g.Passing) > 0 {
			t.Errorf("%s passes by itself: %q", name, g.Passing)
		}
		if len(c.want) == 0 != (len(got) == 0) || len(got) > 1 {
			t.Errorf("%s: %q", name, got)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(got[0], want) || strings.Contains(got[0], c.without) {
				t.Errorf("%s: %q lacks %q, or has %q", name, got[0], want, c.without)
			}
		}
	}
}

// The elector writes a damaged roster anew, so nobody needs to act; a roster of a newer format needs somebody.
func TestADamagedRosterPasses(t *testing.T) {
	for text, passes := range map[string]bool{"x": true, `{"v":99}`: false} {
		g := Of("c", "/own/x", cluster.Snapshot{Roster: cluster.ReadStored[cluster.Roster]("/c/roster", []byte(text), cluster.Stat{}, true)})
		if len(g.Problems) != 1 || slices.Equal(g.Passing, g.Problems) != passes {
			t.Errorf("%s: %q, of which %q pass", text, g.Problems, g.Passing)
		}
	}
}
