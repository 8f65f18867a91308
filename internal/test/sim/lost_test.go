package sim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// newCalmWorld returns a world of hosts with equal session timeouts in which nothing goes wrong, once its group has a leader.
func newCalmWorld(seed uint64, broken breakage) *world {
	w := newWorld(seed, shape{groups: 1}, broken, nil)
	w.onlyRequests()
	for _, h := range w.hosts { // a standby takes over from work that was killed
		h.residents[0].standby = nil
	}
	w.standbys = nil
	w.traits.total, w.traits.ready = 0, 10*time.Millisecond
	g := w.groups[0]
	g.traits.rules = []cluster.Rules{{Type: "priority"}}
	g.rules[0], g.rules[1] = g.traits.rules[0], g.traits.rules[0]
	for _, h := range w.hosts {
		for _, m := range h.members {
			m.report.unhealthy, m.report.ineligible = false, false
		}
	}
	w.waitUntilQuiet()
	if w.failure == "" && (g.leader() == "" || len(g.check.working) != 1) {
		g.fail("L1: nobody leads")
	}
	return w
}

// alikeSeeds calls do with the seeds of worlds whose hosts have equal session timeouts.
func alikeSeeds(n int, do func(seed uint64)) {
	for seed := uint64(1); n > 0; seed++ {
		if newWorld(seed, shape{groups: 1}, breakage{}, nil).alike() {
			n--
			do(seed)
		}
	}
}

// The work runs elsewhere as soon as the lease of a lost leader is over, whoever is lost with it: long before a server would end its
// session. The work takes no time to begin here.
func TestALostHostIsReplacedWhenItsLeaseIsOver(t *testing.T) {
	for _, c := range []struct {
		name string
		lost func(g *group) []*host
		most float64 // as a share of T
	}{
		{"leader", func(g *group) []*host { return []*host{g.host(g.leader())} }, 0.70},
		{"leader and elector", func(g *group) []*host { return []*host{g.host(g.leader()), g.elector()} }, 0.85},
		{"site", func(g *group) []*host {
			site := g.host(g.leader()).site
			return slices.DeleteFunc(slices.Clone(g.w.hosts), func(h *host) bool { return h.site != site })
		}, 0.90},
	} {
		t.Run(c.name, func(t *testing.T) {
			var longest float64
			alikeSeeds(100, func(seed uint64) {
				w := newCalmWorld(seed, breakage{})
				defer w.closeReaders()
				if w.failure != "" {
					t.Fatalf("seed %d: %s", seed, w.failure)
				}
				g := w.groups[0]
				lost := c.lost(g)
				w.run(w.now + time.Duration(seed*37%2000)*time.Millisecond)
				if len(slices.Compact(slices.Clone(lost))) == len(w.hosts) {
					return
				}
				began := w.now
				for _, h := range lost {
					h.lose()
				}
				most := time.Duration(c.most * float64(lost[0].timeout))
				for w.failure == "" && len(g.check.working) == 0 && w.now-began <= most {
					w.run(w.now + 10*time.Millisecond)
				}
				switch {
				case w.failure != "":
					t.Errorf("seed %d: %s", seed, w.failure)
				case len(g.check.working) == 0:
					t.Errorf("seed %d: no work %s after the loss of %s, T is %s", seed, w.now-began, c.name, lost[0].timeout)
				}
				longest = max(longest, float64(w.now-began)/float64(lost[0].timeout))
			})
			t.Logf("at most %.2f T", longest)
		})
	}
}

// lose loses the host for good. The servers keep its session for longer than this takes, as they do unless T is only two ticks.
func (h *host) lose() {
	s := h.session
	h.crashForGood()
	if s != nil {
		s.expiry++
	}
}

// An outage of all servers moves no leader that survives it, and is nobody's failure. Only one that lasts longer than a lease costs a
// restart of the work.
func TestAnOutageMovesNobody(t *testing.T) {
	alikeSeeds(100, func(seed uint64) {
		if why := moves(seed, breakage{}); why != "" {
			t.Errorf("seed %d: %s", seed, why)
		}
	})
}

// If deputies took the outage for the leader's silence, it would move some.
func TestOutageThatCountsAsSilenceMovesLeaders(t *testing.T) {
	moved := 0
	alikeSeeds(100, func(seed uint64) {
		if moves(seed, breakage{name: outageSilences, leases: true}) != "" {
			moved++
		}
	})
	if moved == 0 {
		t.Error("nobody was moved")
	}
	t.Logf("%d of 100 were moved", moved)
}

// moves returns what an outage has changed that it must not; empty if nothing.
func moves(seed uint64, b breakage) string {
	w := newCalmWorld(seed, b)
	defer w.closeReaders()
	g := w.groups[0]
	if w.failure != "" {
		return w.failure
	}
	leader, budget, before := g.leader(), g.members[0].budget, g.check.readElected().Record
	work, terms := g.check.working[0].work, g.check.terms
	lasts := 50*time.Millisecond + time.Duration(seed*7919%2000)*budget.Session/1000
	w.outage(lasts)
	w.run(w.now + lasts + 3*budget.Session)
	after := g.check.readElected().Record
	restart := len(g.check.working) == 0 || g.check.working[0].work != work
	// The last RENEW may have been sent a renewal interval before, and a client may take so long to connect again.
	brief := lasts < budget.Lease-budget.Grace-budget.Renew-budget.Session/20-200*time.Millisecond
	switch {
	case w.failure != "":
		return w.failure
	case g.leader() != leader || len(g.check.working) != 1:
		return fmt.Sprintf("%q leads after an outage of %s with T = %s, %q led before: %s", g.leader(), lasts, budget.Session, leader, after.Reason)
	case len(after.Exclusions) > 0:
		return fmt.Sprintf("a strike for an outage of %s with T = %s: %s", lasts, budget.Session, after.Exclusions[0].Reason)
	case after.Term != before.Term && brief, restart && brief:
		return fmt.Sprintf("the work was restarted in an outage of %s with a lease of %s: %s", lasts, budget.Lease, after.Reason)
	case g.check.terms > terms+1:
		return fmt.Sprintf("the work was restarted %d times in an outage of %s with T = %s", g.check.terms-terms, lasts, budget.Session)
	}
	return ""
}
