package sim

import (
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/policy"
)

// bound returns how long after the faults there must be a leader and no more changes (L1 to L4, S3): the time for expiries, a
// lease wait, an old holder's revoke timeout, and a few failed takeovers with the longest pause between attempts.
func (w *world) bound() time.Duration {
	var longest time.Duration
	for _, h := range w.hosts {
		longest = max(longest, 2*h.timeout*3/2+h.budget.LeaseWait+h.budget.RevokeTimeout())
	}
	limit := 2*longest + 3*w.traits.takeover + 40*time.Second
	if w.traits.losing {
		limit += netInterval * 5 / 4
	}
	for _, rules := range w.rules {
		if policy.UsesExec(rules) {
			limit = max(limit, 2*elector.AnswerAge+40*time.Second)
		}
		if rules.PreemptionWindow < cluster.Duration(time.Hour) {
			limit = max(limit, 4*time.Duration(rules.PreemptionWindow)+40*time.Second)
		}
	}
	limit += delays[len(delays)-1] + shortestRequest + 6*execTimeout
	if w.traits.stuck || w.traits.refusesRelease {
		limit *= 2 // it is tried in between
	}
	return limit
}

// converge waits until the best member leads, and goes on leading.
func (w *world) converge() {
	w.failUnderHardPause()
	quiet := 5 * time.Second
	if w.traits.watchedLonger && !w.traits.stuck && !w.traits.refusesRelease {
		quiet = 45 * time.Second
	}
	began := w.now
	var since time.Duration = -1
	var decision int64
	for w.failure == "" {
		w.run(w.now + time.Second)
		elected := w.check.readElected()
		why := w.unsettled(elected)
		if why != "" {
			since = -1
		} else if since < 0 || decision != elected.Stat.Modified {
			since, decision = w.now, elected.Stat.Modified
		} else if w.now-since >= quiet {
			return
		}
		if w.now-began > w.bound()+quiet {
			if why == "" {
				why = "S3: the decision keeps changing"
			}
			w.fail("%s, %s after the faults", why, w.bound())
		}
	}
}

// failUnderHardPause makes the leader fail under a hard pause without end, and then ends the pause.
func (w *world) failUnderHardPause() {
	if pause := w.check.readControl().Record.Pause; pause == nil || !pause.Hard || pause.For > 0 {
		return
	}
	w.run(w.traits.busy + w.settlingTime() + time.Second)
	for _, h := range w.check.working {
		h.crash(false)
		break
	}
	w.run(w.now + 20*time.Second)
	w.command(0, func(c *cluster.Control) { c.Pause = nil })
}

// unsettled returns what is missing until a leader is working that is either the best member, or kept by something in force.
func (w *world) unsettled(elected cluster.Slot[cluster.Elected]) string {
	compiled, err := w.inForce()
	if err != nil {
		return err.Error()
	}
	in, err := w.members()
	if err != nil {
		return err.Error()
	}
	// A leader that never releases may be missing.
	if missing := len(w.hosts) - len(in.Members); missing > 1 || (missing == 1 && !w.traits.refusesRelease) {
		return "L1: not all daemons are back"
	}
	control := w.check.readControl()
	requests := control.Record
	if requests.Pause != nil && requests.Pause.Hard {
		return ""
	}
	in.Cordons, in.Move = requests.Cordons, requests.Move
	in.Circumstances = elected.Record.Circumstances
	why := w.lacks(compiled, in, elected, control)
	if why != "" && !w.leadable(compiled, in, elected.Record) {
		return ""
	}
	return why
}

// lacks returns what is missing, given a member that can lead.
func (w *world) lacks(compiled *policy.Policy, in policy.Input, elected cluster.Slot[cluster.Elected], control cluster.Slot[cluster.Control]) string {
	rec, requests := elected.Record, control.Record
	fence, current := w.check.readFence(), w.check.readCurrent()
	switch {
	case !elected.Readable():
		return "L1: no member is elected"
	case !fence.Readable() || fence.Record.Term != rec.Term || fence.Record.State != cluster.FenceReady || !current.Exists:
		return "L1: " + rec.Node + " is elected but does not lead"
	case len(w.check.working) != 1 || w.check.working[0].id != rec.Node:
		return "L1: the leader's work is not running"
	case requests.Reelect != nil:
		return "L4: the requested election is not over"
	}
	in.Incumbent, in.Excluded = rec.Incarnation, make(map[string]string)
	for _, x := range rec.Exclusions {
		if !x.Expired {
			in.Excluded[x.Node] = x.Reason
		}
	}
	r := compiled.Rank(in)
	best, ok := r.Best()
	if !ok || best.Name == rec.Incarnation || w.mayStay(compiled, in, rec, requests, control.Err != nil || w.unreadablePolicy()) {
		return ""
	}
	return "L4: " + rec.Node + " leads, the best is " + best.ID
}

// mayStay reports whether something in force keeps the leader although there is a better member.
func (w *world) mayStay(p *policy.Policy, in policy.Input, rec cluster.Elected, requests cluster.Control, damaged bool) bool {
	r, rules := p.Rank(in), p.Rules
	best, _ := r.Best()
	paused := requests.Pause != nil || damaged
	if entry, _ := r.Find(rec.Incarnation); !entry.Eligible() {
		asked := slices.ContainsFunc(entry.Refusals, func(x policy.Refusal) bool {
			return x.Filter == policy.HealthFilter || x.Filter == policy.CordonFilter
		})
		return (paused && !asked) || w.reelected(p, in, rec)
	}
	if m := requests.Move; m != nil && m.Matches(best.ID, best.Node.Record.Site) && !m.Matches(rec.Node, rec.Site) {
		return false
	}
	damped := rules.MaxPreemptions > 0 && len(rec.Preemptions) >= rules.MaxPreemptions && rules.PreemptionWindow >= cluster.Duration(time.Hour)
	return paused || damped || r.Unanswered || rules.Failback == cluster.FailbackManual
}

// unreadablePolicy reports whether policy must not move the leader because its record cannot be read.
func (w *world) unreadablePolicy() bool {
	data, stat, err := w.tree.Get(0, w.known.policy, false)
	return err == nil && !cluster.ReadSlot[cluster.Policy](w.known.policy, data, stat, true).Readable()
}

// reelected reports whether an election to replace a leader that is not eligible would elect it again: it may be ineligible
// only under the circumstances of its own election.
func (w *world) reelected(p *policy.Policy, in policy.Input, rec cluster.Elected) bool {
	in.Incumbent = ""
	for _, cause := range []cluster.Cause{cluster.CauseIneligible, cluster.CauseUnhealthy, cluster.CauseDrain, cluster.CauseStepDown} {
		in.Circumstances = cluster.Circumstances{Cause: cause, Node: rec.Node, Site: rec.Site}
		if cause == cluster.CauseUnhealthy {
			in.Circumstances.Failed = []string{rec.Site}
		}
		if best, ok := p.Rank(in).Best(); ok && best.Name == rec.Incarnation {
			return true
		}
	}
	return false
}

// members returns the members to rank.
func (w *world) members() (policy.Input, error) {
	var in policy.Input
	names, _, err := w.tree.Children(0, w.known.election, false)
	if err != nil {
		return in, err
	}
	all, _ := cluster.ParseIncarnations(names)
	for _, i := range all {
		path := w.known.nodes + "/" + i.ID
		data, stat, err := w.tree.Get(0, path, false)
		in.Members = append(in.Members, cluster.Member{Incarnation: i, Node: cached(w.cache.node, path, data, stat, err == nil, cluster.ReadSlot[cluster.Node])})
	}
	answer := w.answer(in)
	in.Answer = &answer
	return in, nil
}

// leadable reports whether a member that is eligible can also lead, whatever has become of the elected leader: the elector may
// rank the members under the circumstances of its decision, or under those after the leader's end.
func (w *world) leadable(p *policy.Policy, in policy.Input, rec cluster.Elected) bool {
	for _, c := range append(w.afterwards(rec), in.Circumstances) {
		in.Circumstances = c
		able := slices.ContainsFunc(p.Rank(in).Entries, func(e policy.Entry) bool {
			i := slices.IndexFunc(w.hosts, func(h *host) bool { return h.id == e.Member.ID })
			return e.Eligible() && !w.hosts[i].stalls && w.hosts[i].undoing != forever
		})
		if !able {
			return false
		}
	}
	return true
}

// afterwards returns the possible circumstances of the election of a successor.
func (w *world) afterwards(rec cluster.Elected) []cluster.Circumstances {
	fence := w.check.readFence().Record
	node, site := rec.Node, rec.Site
	if node == "" {
		node, site = fence.Node, fence.Site
	}
	failed := rec.Circumstances.Failed
	if fence.Term == rec.Term && (fence.State == cluster.FenceReady || fence.Led) {
		failed = nil
	}
	all := []cluster.Circumstances{
		{Cause: cluster.CauseStopped, Node: node, Site: site, Failed: failed}, {Cause: cluster.CauseRepair, Node: node, Site: site, Failed: failed},
	}
	if !slices.Contains(failed, site) && site != "" {
		failed = append(slices.Clone(failed), site)
	}
	for _, cause := range []cluster.Cause{cluster.CauseFailure, cluster.CauseGaveUp, cluster.CauseRevoked, cluster.CauseOverdue} {
		all = append(all, cluster.Circumstances{Cause: cause, Node: node, Site: site, Failed: failed})
	}
	return all
}
