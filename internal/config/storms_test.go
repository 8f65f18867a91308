package config

import (
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

func TestDefaultsForManyGroups(t *testing.T) {
	h := newHost(t, "node: {id: n1}\nzookeeper: {root: /z}\ndefaults: {election: {settle: 5s}}\n", map[string]string{
		"plain": "{}", "own": "election: {settle: 0s}", "even": "policy: {type: spread}", "ranked": "policy: {rank: [site, spread]}",
		"now": "policy: {type: spread, failback: immediate}", "follows": "policy: {rank: ['with:even', oldest]}",
		"avoids": "policy: {rank: [site, 'apart:even', oldest]}", "strategy": "policy: {strategies: [{use: spread}]}",
		"strict": "policy: {apart_strict: [even]}", "slots": "slots: {count: 2}",
		"unused": "policy: {type: spread, rank: [site, oldest]}", "stays": "policy: {type: spread, failback: manual}",
	})
	host, err := LoadHost(Sources{File: h.main})
	if err != nil {
		t.Fatal(err)
	}
	again, err := Unbundle(Bundle(host))
	if err != nil {
		t.Fatal(err)
	}
	want := func(settle time.Duration, failback string) (c Config) {
		c.Election.Settle, c.Policy.Failback = settle, failback
		return c
	}
	for _, host := range []Host{host, again} {
		for name, want := range map[string]Config{
			"plain": want(5*time.Second, cluster.FailbackManual), "own": want(0, cluster.FailbackManual),
			"even": want(5*time.Second, "30s"), "ranked": want(5*time.Second, "30s"),
			"now": want(5*time.Second, cluster.FailbackImmediate), "follows": want(5*time.Second, "30s"),
			"avoids": want(5*time.Second, "30s"), "strategy": want(5*time.Second, "30s"),
			"strict": want(5*time.Second, cluster.FailbackManual), "slots": want(5*time.Second, "30s"),
			"unused": want(5*time.Second, cluster.FailbackManual), "stays": want(5*time.Second, cluster.FailbackManual),
		} {
			c, _ := host.Group(name)
			if c.Election.Settle != want.Election.Settle || c.Policy.Failback != want.Policy.Failback {
				t.Errorf("%s: settle %s, failback %s", name, c.Election.Settle, c.Policy.Failback)
			}
		}
	}
}

func TestDefaultsForOneGroup(t *testing.T) {
	c, err := Load(Sources{Env: []string{"ZKELECTD_POLICY_TYPE=spread"}})
	if err != nil || c.Election.Settle != 3*time.Second || c.Policy.Failback != "30s" {
		t.Errorf("%+v, %v", c.Election, err)
	}
}
