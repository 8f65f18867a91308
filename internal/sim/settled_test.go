package sim

import (
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/policy"
)

// bound is by when, after the faults, there is a leader and nothing moves any more (L1 to L4, S3): expiry of what is lost,
// a lease wait, an old holder's revoke timeout, and a few failed takeovers, each with the longest pause between two tries.
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
	limit += delays[len(delays)-1] + shortest + 6*execTimeout
	if w.traits.stuck || w.traits.clings {
		limit *= 2 // it is tried in between
	}
	return limit
}

// converge waits for a leader that is the best and stays so.
func (w *world) converge() {
	w.holdOut()
	quiet := 5 * time.Second
	if w.traits.patient && !w.traits.stuck && !w.traits.clings {
		quiet = 45 * time.Second
	}
	began := w.now
	var since time.Duration = -1
	var decision int64
	why := ""
	for w.failure == "" {
		w.run(w.now + time.Second)
		elected := w.check.readElected()
		if why = w.unsettled(elected); why != "" {
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

// holdOut has the leader fail under a hard pause that stays, and then ends that.
func (w *world) holdOut() {
	if pause := w.check.readControl().Record.Pause; pause == nil || !pause.Hard || pause.For > 0 {
		return
	}
	w.run(w.traits.busy + w.hearing() + time.Second)
	for _, h := range w.check.working {
		h.crash(false)
		break
	}
	w.run(w.now + 20*time.Second)
	w.command(0, func(c *cluster.Control) { c.Pause = nil })
}

// unsettled says what is missing for a leader at work that is the best one, or of which something in force says that it
// stays although it is not.
func (w *world) unsettled(elected cluster.Slot[cluster.Elected]) string {
	compiled, err := w.inForce()
	if err != nil {
		return err.Error()
	}
	in, err := w.members()
	if err != nil {
		return err.Error()
	}
	// One that clings to current to the end may not be.
	if missing := len(w.hosts) - len(in.Members); missing > 1 || (missing == 1 && !w.traits.clings) {
		return "L1: not everybody is back"
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

// lacks says what is missing where there is a member that can lead.
func (w *world) lacks(compiled *policy.Policy, in policy.Input, elected cluster.Slot[cluster.Elected], control cluster.Slot[cluster.Control]) string {
	rec, requests := elected.Record, control.Record
	fence, current := w.check.readFence(), w.check.readCurrent()
	switch {
	case !elected.Readable():
		return "L1: nobody is elected"
	case !fence.Readable() || fence.Record.Term != rec.Term || fence.Record.State != cluster.FenceReady || !current.Exists:
		return "L1: " + rec.Node + " is elected and does not lead"
	case len(w.check.working) != 1 || w.check.working[0].id != rec.Node:
		return "L1: the work of the leader is not there"
	case requests.Reelect != nil:
		return "L4: the election that was asked for is not over"
	}
	in.Incumbent, in.Excluded = rec.Incarnation, make(map[string]string)
	for _, x := range rec.Exclusions {
		if !x.Served {
			in.Excluded[x.Node] = x.Reason
		}
	}
	r := compiled.Rank(in)
	best, ok := r.Best()
	if !ok || best.Name == rec.Incarnation || w.stays(compiled, in, rec, requests, control.Err != nil || w.unreadablePolicy()) {
		return ""
	}
	return "L4: " + rec.Node + " leads, the best is " + best.ID
}

// stays tells that something keeps the leader although there is a better one.
func (w *world) stays(p *policy.Policy, in policy.Input, rec cluster.Elected, requests cluster.Control, damaged bool) bool {
	r, rules := p.Rank(in), p.Rules
	best, _ := r.Best()
	paused := requests.Pause != nil || damaged
	if entry, _ := r.Find(rec.Incarnation); !entry.Allowed() {
		asked := slices.ContainsFunc(entry.Refusals, func(x policy.Refusal) bool {
			return x.Filter == policy.HealthFilter || x.Filter == policy.CordonFilter
		})
		return (paused && !asked) || w.again(p, in, rec)
	}
	if m := requests.Move; m != nil && m.Matches(best.ID, best.Node.Record.Site) && !m.Matches(rec.Node, rec.Site) {
		return false
	}
	damped := rules.MaxPreemptions > 0 && len(rec.Preemptions) >= rules.MaxPreemptions && rules.PreemptionWindow >= cluster.Duration(time.Hour)
	return paused || damped || r.Unanswered || rules.Failback == cluster.FailbackManual
}

// unreadablePolicy reports whether policy moves nobody since its record cannot be read.
func (w *world) unreadablePolicy() bool {
	data, stat, err := w.tree.Get(0, w.known.policy, false)
	return err == nil && !cluster.ReadSlot[cluster.Policy](w.known.policy, data, stat, true).Readable()
}

// again tells that the election that would replace a leader that may not lead would find it again: what holds against it
// holds under the circumstances of its own election alone.
func (w *world) again(p *policy.Policy, in policy.Input, rec cluster.Elected) bool {
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

// members is what there is to choose from.
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

// leadable reports whether there is a member that policy and operators let lead, and that can, whatever has become of the
// elected leader: the elector may judge the members under the circumstances of its decision, or under those of its end.
func (w *world) leadable(p *policy.Policy, in policy.Input, rec cluster.Elected) bool {
	for _, c := range append(w.afterwards(rec), in.Circumstances) {
		in.Circumstances = c
		able := slices.ContainsFunc(p.Rank(in).Entries, func(e policy.Entry) bool {
			i := slices.IndexFunc(w.hosts, func(h *host) bool { return h.id == e.Member.ID })
			return e.Allowed() && !w.hosts[i].stalls && w.hosts[i].undoing != forever
		})
		if !able {
			return false
		}
	}
	return true
}

// afterwards returns the circumstances under which the successor of the elected leader may be looked for.
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
