package status

import (
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

// Each damaged record is described with the consequences and what to do.
func TestDamageSaysWhatToDo(t *testing.T) {
	read := func(leader, elected, policy, control string) cluster.Snapshot {
		return cluster.Snapshot{
			Fence:   cluster.ReadFence("/c/leader", []byte(leader), cluster.Stat{}, true),
			Elected: cluster.ReadSlot[cluster.Elected]("/c/leader/elected", []byte(elected), cluster.Stat{}, elected != ""),
			Policy:  cluster.ReadSlot[cluster.Policy]("/c/policy", []byte(policy), cluster.Stat{}, policy != ""),
			Control: cluster.ReadSlot[cluster.Control]("/c/control", []byte(control), cluster.Stat{}, control != ""),
		}
	}
	for name, c := range map[string]struct {
		s       cluster.Snapshot
		want    []string // in the only problem
		without string
	}{
		"a new group":   {s: read("", "", "", "")},
		"damaged fence": {read("x", "", "", ""), []string{"znode /c/leader "}, "upgrade"},
		"newer fence":   {read(`{"v":2}`, "", "", ""), []string{"upgrade this host, or stop its daemon: until then it neither elects nor takes over"}, "repair"},
		"newer elected": {read("", `{"v":2}`, "", ""), []string{"znode /c/leader/elected", "neither elects nor takes over"}, "repair"},
		"policy":        {read("", "", "x", ""), []string{"the policy is damaged", "policy does not replace a healthy leader", "'zkelectd repair policy'"}, "upgrade"},
		"newer policy":  {read("", "", `{"v":2}`, ""), []string{"upgrade this host: until then policy does not replace a healthy leader"}, "repair"},
		"control":       {read("", "", "", "x"), []string{"policy does not replace a healthy leader", "'zkelectd repair control'"}, "upgrade"},
		"newer control": {read("", "", "", `{"v":2}`), []string{"upgrade this host: until then policy does not replace a healthy leader"}, "repair"},
	} {
		got := Of("/c", c.s).Problems
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
