package sim

import (
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// The only eligible node fails as soon as it is elected, and the exec policy, which applies only after a failure, does not name
// it. Then no member is eligible, and the checks must not demand a leader.
func TestNoLeaderIfExecNamesNoneAfterAFailure(t *testing.T) {
	const seed = 44 // with this seed the program leaves n1 out
	w := newWorld(seed, shape{groups: 1}, breakage{}, nil)
	g := w.groups[0]
	defer w.closeReaders()
	if g.hash("n1")%16 != 0 || len(w.hosts) != 3 {
		t.Fatal("the scenario needs another seed")
	}
	w.onlyRequests()
	g.traits.rules = []cluster.Rules{{
		Type: "round-robin", Strategies: []cluster.Strategy{{When: "len(failed_sites) > 0", Use: "exec"}},
		Sites: map[string]int{"dc1": 1}, Filter: []string{"member.site != 'dc0'"}, Failback: cluster.FailbackImmediate,
	}}
	g.rules[0], g.rules[1] = g.traits.rules[0], g.traits.rules[0]
	for !g.check.readElected().Readable() && w.now < 20*time.Second {
		w.run(w.now + 10*time.Millisecond)
	}
	if elected := g.check.readElected().Record.Node; elected != "n1" {
		t.Fatalf("%q is elected", elected)
	}
	g.tamper(cluster.Op{Kind: cluster.OpDelete, Path: g.known.election + "/" + g.members[1].loop.self.Name})
	w.run(w.now + 10*time.Second)
	w.traits.busy = w.now
	w.heal()
	w.converge()
	if w.failure != "" {
		t.Error(w.failure)
	}
	if leader := g.leader(); leader != "" {
		t.Errorf("%s leads: this is not the scenario", leader)
	}
}
