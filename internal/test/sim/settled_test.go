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
	for _, g := range w.groups {
		for _, m := range g.members {
			longest = max(longest, 2*m.timeout*3/2+m.budget.LeaseWait+m.budget.RevokeTimeout())
		}
	}
	limit := 2*longest + 3*w.traits.takeover + 40*time.Second
	if w.fencing != nil {
		limit += 2*longest + w.fencing.longest // a host that was fenced comes back
	}
	if w.traits.losing {
		limit += netInterval * 5 / 4
	}
	for _, g := range w.groups {
		for _, rules := range g.rules {
			if policy.UsesExec(rules) {
				limit = max(limit, 2*elector.AnswerAge+40*time.Second)
			}
		}
	}
	limit += 2 * time.Duration(w.excess) * time.Second // the limit grows by a term in each second, and attempts go on meanwhile
	limit += delays[len(delays)-1] + shortestRequest + 6*execTimeout + 6*confirmAfter
	for _, r := range w.resources {
		if r.calls != nil {
			limit = max(limit, 90*time.Second) + 10*r.calls.wait
		}
	}
	if w.resources[0].slotted {
		limit += patience + 20*time.Second
	}
	if w.traits.stuck || w.traits.refusesRelease || w.hangs() {
		limit *= 2 // it is tried in between
	}
	if w.failsafe != nil {
		limit += w.failsafe.patience(w)
	}
	return limit
}

// converge waits until the best member of each group leads, and goes on leading.
func (w *world) converge() {
	w.failUnderHardPause()
	quiet := 5 * time.Second
	if w.traits.watchedLonger && !w.traits.stuck && !w.traits.refusesRelease && !w.hangs() {
		quiet = 45 * time.Second
	}
	began := w.now
	since := make([]time.Duration, len(w.groups)) // since when each group is settled; negative: it is not
	decision := make([]int64, len(w.groups))
	for i := range since {
		since[i] = -1
	}
	for w.failure == "" {
		w.run(w.now + time.Second)
		w.thawEnding()
		settled := true
		for i, g := range w.groups {
			elected := g.check.readElected()
			why := g.unsettled(elected)
			if why != "" {
				since[i] = -1
			} else if since[i] < 0 || decision[i] != elected.Stat.Modified {
				since[i], decision[i] = w.now, elected.Stat.Modified
			} else if w.now-since[i] >= quiet {
				continue
			}
			settled = false
			if w.now-began > w.bound()+quiet {
				if why == "" {
					why = "S3: the decision keeps changing"
				}
				g.fail("%s, %s after the faults", why, w.bound())
			}
		}
		if settled {
			w.checkHeirs()
			return
		}
	}
}

// failUnderHardPause makes the leaders of groups under a hard pause without end fail, and then ends the pauses.
func (w *world) failUnderHardPause() {
	paused := slices.DeleteFunc(slices.Clone(w.groups), func(g *group) bool {
		pause := g.check.readControl().Record.Pause
		return pause == nil || !pause.Hard || pause.For > 0
	})
	if len(paused) == 0 {
		return
	}
	w.run(w.traits.busy + w.settlingTime() + time.Second)
	for _, g := range paused {
		if len(g.check.working) > 0 {
			g.check.working[0].crash(false)
		}
	}
	w.run(w.now + 20*time.Second)
	for _, g := range paused {
		g.command(0, func(c *cluster.Control) { c.Pause = nil })
	}
}

// unsettled returns what is missing until a leader is working that is either the best member, or kept by something in force.
func (g *group) unsettled(elected cluster.Stored[cluster.Elected]) string {
	w := g.w
	compiled, err := g.inForce()
	if err != nil {
		return err.Error()
	}
	in, err := g.toRank()
	if err != nil {
		return err.Error()
	}
	// A leader that never releases, or whose work hangs, may be missing.
	if missing := len(w.hosts) - len(in.Members); missing > 1 || (missing == 1 && !w.traits.refusesRelease && !w.hangs()) {
		return "L1: not all daemons are back"
	}
	if why := g.unsettledStandbys(); why != "" {
		return why
	}
	control := g.check.readControl()
	requests := control.Record
	if requests.Pause != nil && requests.Pause.Hard || control.Err != nil && compiled.Rules.Confirm != "" {
		return "" // nobody can approve an election with damaged requests
	}
	if g.slotted {
		if why := g.unsettledSlots(); why != "" {
			return why
		}
		if g.unused() {
			if g.hasHolder() && w.sessions[g.check.readCurrent().Stat.Owner] != nil || len(g.check.working) > 0 { // no elector looks there, or deletes a forgery
				return "S1: a slot that does not exist has a leader"
			}
			return ""
		}
		in.Held, in.PerNode = g.held(), g.readSlots().Record.PerNode
	}
	in.Cordons, in.Move = requests.Cordons, requests.Move
	in.Circumstances = elected.Record.Circumstances
	why := g.lacks(compiled, in, elected, control)
	if why != "" && !g.leadable(compiled, in, elected.Record) {
		return ""
	}
	return why
}

// lacks returns what is missing, given a member that can lead.
func (g *group) lacks(compiled *policy.Policy, in policy.Input, elected cluster.Stored[cluster.Elected], control cluster.Stored[cluster.Control]) string {
	rec, requests := elected.Record, control.Record
	fence, current := g.check.readFence(), g.check.readCurrent()
	switch {
	case !elected.Readable():
		return "L1: no member is elected"
	case !fence.Readable() || fence.Record.Term != rec.Term || fence.Record.State != cluster.FenceReady || !current.Exists:
		return "L1: " + rec.Node + " is elected but does not lead"
	case len(g.check.working) != 1 || g.check.working[0].id != rec.Node:
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
	if !ok || best.Name == rec.Incarnation || g.mayStay(compiled, in, rec, requests, control.Err != nil || g.unreadablePolicy()) {
		return ""
	}
	return "L4: " + rec.Node + " leads, the best is " + best.ID
}

// mayStay reports whether something in force keeps the leader although there is a better member.
func (g *group) mayStay(p *policy.Policy, in policy.Input, rec cluster.Elected, requests cluster.Control, damaged bool) bool {
	r, rules := p.Rank(in), p.Rules
	best, _ := r.Best()
	paused := requests.Pause != nil || damaged
	fence := g.check.readFence().Record
	if fence.HasFenced(best.ID) && g.w.now-g.check.fencedNodes[best.ID] < g.w.traits.exclusion+g.w.bound() {
		return true
	}
	if entry, _ := r.Find(rec.Incarnation); !entry.Eligible() {
		asked := slices.ContainsFunc(entry.Refusals, func(x policy.Refusal) bool {
			return x.Filter == policy.HealthFilter || x.Filter == policy.CordonFilter
		})
		return ((paused || rules.RollCall.Enabled) && !asked) || g.reelected(p, in, rec)
	}
	if m := requests.Move; m != nil && m.Matches(best.ID, best.Node.Record.Site) && !m.Matches(rec.Node, rec.Site) {
		return false
	}
	damped := rules.MaxPreemptions > 0 && len(rec.Preemptions) >= rules.MaxPreemptions
	return paused || damped || rules.RollCall.Enabled || r.Unanswered || rules.Failback == cluster.FailbackManual || rules.Confirm != ""
}

// unreadablePolicy reports whether policy must not move the leader because its record cannot be read.
func (g *group) unreadablePolicy() bool {
	return g.readPolicy().Err != nil
}

// reelected reports whether an election to replace a leader that is not eligible would elect it again: it may be ineligible
// only under the circumstances of that election.
func (g *group) reelected(p *policy.Policy, in policy.Input, rec cluster.Elected) bool {
	in.Incumbent = ""
	for _, cause := range []cluster.Cause{cluster.CauseIneligible, cluster.CauseUnhealthy, cluster.CauseDrain} {
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

// toRank returns the members to rank.
func (g *group) toRank() (policy.Input, error) {
	w := g.w
	var in policy.Input
	names, _, err := w.tree.Children(0, g.known.election, false)
	if err != nil {
		return in, err
	}
	all, _ := cluster.ParseIncarnations(names)
	for _, i := range all {
		in.Members = append(in.Members, cluster.Member{Incarnation: i, Node: readCached(w, g.known.nodes+"/"+i.ID, cluster.ReadStored[cluster.Node])})
	}
	answer := g.answer(in)
	in.Answer = &answer
	return in, nil
}

// leadable reports whether a member that is eligible can also lead, whatever has become of the elected leader: the elector may
// rank the members under the circumstances of its decision, or under those after the leader's end.
func (g *group) leadable(p *policy.Policy, in policy.Input, rec cluster.Elected) bool {
	for _, c := range append(g.afterwards(rec), in.Circumstances) {
		in.Circumstances = c
		able := slices.ContainsFunc(p.Rank(in).Entries, func(e policy.Entry) bool {
			i := slices.IndexFunc(g.members, func(m *member) bool { return m.id == e.Member.ID })
			return e.Eligible() && !g.members[i].stalls && !g.members[i].neverReleases()
		})
		if !able {
			return false
		}
	}
	return true
}

// afterwards returns the possible circumstances of the election of a successor.
func (g *group) afterwards(rec cluster.Elected) []cluster.Circumstances {
	fence := g.check.readFence().Record
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

// hasHolder reports whether someone holds leadership. A current that nobody owns may have been put there: nobody leads by it.
func (g *group) hasHolder() bool {
	s := cluster.Snapshot{Fence: g.check.readFence(), Current: g.check.readCurrent()}
	s.CheckCurrent(g.paths)
	return s.Current.Exists && !s.ForeignCurrent()
}
