package host

import (
	"reflect"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/policy"
)

func TestPlacement(t *testing.T) {
	p := newPlacement()
	woken := make(map[string]int)
	group := func(name string, rank ...string) groupPlacement {
		return p.of(name, cluster.Rules{Rank: rank}, func() { woken[name]++ })
	}
	billing, cache, reports := group("billing"), group("cache", "with:billing"), group("reports", "apart:billing", "apart:cache")
	check := func(what string, g groupPlacement, peers []string, leaders map[string]int, elected map[string]string) {
		t.Helper()
		got := g.Others(peers)
		want := elector.Placement{Load: leaders, Peers: elected, Relations: policy.Graph{
			"cache": {With: []string{"billing"}}, "reports": {Apart: []string{"billing", "cache"}},
		}}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	check("nothing is known", cache, []string{"billing", "other"}, map[string]int{}, map[string]string{"billing": ""})
	billing.Elected("n1")
	billing.Elected("n1")
	cache.Elected("n1")
	reports.Elected("n2")
	check("its own leader does not count", cache, []string{"billing"}, map[string]int{"n1": 1, "n2": 1}, map[string]string{"billing": "n1"})
	check("that of a group without a leader", group("new"), nil, map[string]int{"n1": 2, "n2": 1}, map[string]string{})
	if !reflect.DeepEqual(woken, map[string]int{"cache": 1, "reports": 2}) {
		t.Errorf("woken: %v", woken)
	}
	cache.Elected("n3")
	check("a leader has moved", billing, nil, map[string]int{"n1": 0, "n2": 1, "n3": 1}, map[string]string{})
	cache.SetPolicy(cluster.Rules{Type: "spread"})
	if _, known := billing.Others(nil).Relations["cache"]; known {
		t.Error("the policy in force does not count")
	}
	cache.SetPolicy(cluster.Rules{Rank: []string{"with:billing"}})
	p.published(map[string]cluster.Load{"n1": {Leaders: 1}, "n2": {Leaders: 4}, "n4": {Leaders: 2}})
	check("others have published", billing, nil, map[string]int{"n1": 0, "n2": 4, "n3": 1, "n4": 2}, map[string]string{})
	p.published(nil)
	p.unknown("billing")
	check("a group is unknown", cache, []string{"billing"}, map[string]int{"n2": 1, "n3": 0}, map[string]string{})
	p.remove("billing")
	billing.Elected("n9")
	check("a removed group", cache, []string{"billing"}, map[string]int{"n2": 1, "n3": 0}, map[string]string{})
}

// When the host with the leaders of two groups stops, the one that follows the other moves once, to where that is elected.
func TestAGroupFollowsAnother(t *testing.T) {
	base := fresh()
	follower := work + "policy: {rank: ['with:g0', 'expr:member.id == \"c\"', oldest], failback: immediate}\n"
	initializeAll(t, base, 1)
	var hosts []*fleetOf
	for _, id := range []string{"a", "b", "c"} {
		f := joinGroups(t, base, id, 1)
		f.until("g0", "is a member", func(v status.Daemon) bool { return v.Elected == "a" })
		hosts = append(hosts, f)
	}
	initialize(t, base+"/g1")
	for _, f := range hosts {
		f.write("g1", follower)
		f.Reload()
		f.until("g1", "follows", func(v status.Daemon) bool { return v.Elected == "a" })
	}
	hosts[0].until("g1", "leads", status.Daemon.Leads)
	term := hosts[1].view("g1").ElectedTerm
	hosts[0].Stop("the test stops the leader")
	hosts[1].until("g0", "leads", status.Daemon.Leads)
	hosts[1].until("g1", "follows", status.Daemon.Leads)
	if v := hosts[1].view("g1"); (v.ElectedTerm-term)%64 != 1 { // as many more if the clock was ahead
		t.Errorf("it has moved %d times: %s", (v.ElectedTerm-term)%64, v.Reason)
	}
}
