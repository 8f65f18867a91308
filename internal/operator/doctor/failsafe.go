package doctor

import (
	"errors"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
)

// failsafe are the findings about failsafe mode: one for each other member, as the daemon of this host has asked it. There is none if the
// policy does not enable it.
func (g Group) failsafe() []Finding {
	const check, advice = "failsafe mode", "see 'What each host needs' in docs/failsafe.md"
	view, own := g.View.Failsafe, g.Failsafe
	switch {
	case view == nil:
		return nil
	case view.Stuck:
		return []Finding{{Fail, check, g.Name, "the last leader may still work, and none of these nodes, which can say otherwise, is registered with the state directory that it had: " + listed(view.WaitsFor),
			"start one of them; see 'All hosts are lost for good' in docs/failsafe.md"}}
	case g.FailsafeErr != nil:
		return []Finding{unknown(check, g.Name, g.FailsafeErr, cluster.InGroup("'zkelectd status'", g.Name)+" says what the leader has found")}
	case own == nil:
		return []Finding{{Warn, check, g.Name, "the policy enables it, but the daemon of this host takes no part: its configuration does not have failsafe.enabled", advice}}
	case own.Problem != "":
		return []Finding{{Warn, check, g.Name, "it would not work if this host led: " + own.Problem, advice}}
	}
	return g.promisers(own)
}

// promisers has a finding for each other member.
func (g Group) promisers(own *status.Failsafe) (all []Finding) {
	const check, advice = "failsafe mode", "see 'What each host needs' in docs/failsafe.md"
	for _, m := range g.View.Members {
		switch why, bad := own.Unready[m.Node]; {
		case m.Node == g.Node:
		case bad:
			all = append(all, Finding{Warn, check, g.Name, m.Node + " would not promise, so without ZooKeeper the leader would stop: " + why, advice})
		default:
			all = append(all, good(check, g.Name, "%s would promise", m.Node))
		}
	}
	if len(all) == 0 {
		return []Finding{unknown(check, g.Name, errors.New("no other member is registered"), "")}
	}
	return append(all, g.active()...)
}

// active is the finding about a leader that ZooKeeper does not answer.
func (g Group) active() []Finding {
	if g.Failsafe == nil || !g.Failsafe.Active {
		return nil
	}
	return []Finding{{Warn, "failsafe mode", g.Name, "ACTIVE: this host leads without ZooKeeper, by the promises of " + listed(g.Failsafe.Asks),
		"bring ZooKeeper back; until then stop no daemon of the group"}}
}
