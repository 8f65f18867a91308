package config

import (
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

func TestDefaultsForManyGroups(t *testing.T) {
	h := newHost(t, "node: {id: n1}\nzookeeper: {root: /z}\ndefaults: {election: {settle: 5s}}\n", map[string]string{
		"plain": "{}", "own": "election: {settle: 0s}", "even": "policy: {type: spread}", "ranked": "policy: {rank: [site, spread]}",
		"now": "policy: {type: spread}\nelection: {failback: {mode: immediate}}",
	})
	host, err := LoadHost(Sources{File: h.main})
	if err != nil {
		t.Fatal(err)
	}
	again, err := Unbundle(Bundle(host))
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []Host{host, again} {
		if m := host.Config.Moves; m.Spread != time.Minute {
			t.Errorf("moves: %+v", m)
		}
		for name, want := range map[string]Election{
			"plain": {Settle: 5 * time.Second, Failback: Failback{Mode: cluster.FailbackImmediate}}, "own": {Failback: Failback{Mode: cluster.FailbackImmediate}},
			"even": {Settle: 5 * time.Second, Failback: Failback{Mode: cluster.FailbackDelayed}}, "ranked": {Settle: 5 * time.Second, Failback: Failback{Mode: cluster.FailbackDelayed}},
			"now": {Settle: 5 * time.Second, Failback: Failback{Mode: cluster.FailbackImmediate}},
		} {
			c, _ := host.Group(name)
			if e := c.Election; e.Settle != want.Settle || e.Failback.Mode != want.Failback.Mode {
				t.Errorf("%s: settle %s, failback %s", name, e.Settle, e.Failback.Mode)
			}
		}
	}
	h.setMain("node: {id: n1}\nmoves: {spread: 0s}\n")
	if host, err = LoadHost(Sources{File: h.main}); err != nil || host.Config.Moves.Spread != 0 {
		t.Errorf("%+v, %v", host.Config.Moves, err)
	}
	if c, _ := host.Group("plain"); c.Election.Settle != 3*time.Second || c.Moves.Spread != 0 {
		t.Errorf("%+v", c.Election)
	}
}

func TestDefaultsForOneGroup(t *testing.T) {
	c, err := Load(Sources{Env: []string{"ZKELECTD_POLICY_TYPE=spread"}})
	if err != nil || c.Moves.Spread != 0 || c.Election.Settle != 3*time.Second || c.Election.Failback.Mode != cluster.FailbackDelayed {
		t.Errorf("%+v, %+v, %v", c.Moves, c.Election, err)
	}
}
