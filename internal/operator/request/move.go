package request

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/policy"
)

// planMove plans a move. The target of a move without one is the best member by policy that does not
// lead, for [BestMoveFor] unless the request says how long.
func (d *draft) planMove(r Request) (Plan, error) {
	if r.Best {
		other, err := newDraft(d.q, d.options)
		if err == nil {
			r.Node, err = other.bestOther()
		}
		if err != nil {
			return Plan{}, err
		}
		d.options.For = cmp.Or(d.options.For, BestMoveFor)
	}
	return d.move(r.Node, r.Site)
}

// move plans to put a node or a site first.
func (d *draft) move(node, site string) (Plan, error) {
	if err := errors.Join(d.checkTarget(node, site), d.checkNoHardPause()); err != nil {
		return Plan{}, err
	}
	before := d.next.Move
	m := &cluster.Move{Request: d.newRequest(), Node: node, Site: site, Force: d.options.Force}
	d.next.Move = m
	d.endReelect("ended by a move")
	out := d.forecast()
	if !m.Matches(out.Leader.ID, out.Leader.Node.Record.Site) {
		return Plan{}, d.moveRefusal(m, out)
	}
	if before != nil {
		d.addMessage("replaces the move to %s %s", before.Target(), before.Request)
	}
	switch leader, at := d.leader(); {
	case m.Matches(leader, at):
		d.addMessage("%s leads already; it stays first%s", leader, d.duration())
	case leader == "":
		d.addMessage("there is no leader; %s takes over and stays first%s", out.Leader.ID, d.duration())
	default:
		d.addMessage("moves leadership from %s (%s) to %s (%s)%s", leader, at, out.Leader.ID,
			out.Leader.Node.Record.Site, d.duration())
	}
	return d.finish("move to " + m.Target())
}

// bestOther returns the best eligible member by policy that does not lead.
func (d *draft) bestOther() (string, error) {
	leader, _ := d.leader()
	if leader == "" {
		return "", errors.New("there is no leader to replace: name a node or a site")
	}
	out := d.forecast()
	for _, e := range out.Last.Ranking.Entries {
		if e.Eligible() && e.Member.ID != leader {
			return e.Member.ID, nil
		}
	}
	why := d.othersRefused(out, func(id, _ string) bool { return id == leader })
	d.next.Cordons = append(d.next.Cordons, cluster.Cordon{Node: leader, Drain: true})
	if then := d.forecast(); d.q.Snapshot.Slot == "" && then.HasLeader() && then.Leader.ID != leader {
		why += fmt.Sprintf("; %s has %s take over, although it has failed", d.inGroup("'zkelectd drain --node %s'",
			leader), then.Leader.ID)
	}
	return "", fmt.Errorf("no other member is eligible: %s", why)
}

// moveRefusal returns an error that says why m would not have the wanted outcome.
func (d *draft) moveRefusal(m *cluster.Move, out whatif.Outcome) error {
	why := moveObstacles(out, *m)
	excluded := excludedNode(out, *m)
	m.Force = true
	if forced := d.forecast(); !d.options.Force && m.Matches(forced.Leader.ID, forced.Leader.Node.Record.Site) {
		why += "; --force moves it anyway"
	} else if excluded != "" {
		why += fmt.Sprintf("; run %s first: a forced move does not ignore an exclusion",
			d.inGroup("'zkelectd clear-strikes %s'", excluded))
	}
	return fmt.Errorf("leadership cannot move to %s: %s", m.Target(), why)
}

// moveObstacles says why the members that m could move leadership to are not eligible, or are held back.
func moveObstacles(out whatif.Outcome, m cluster.Move) string {
	var why []string
	for _, e := range out.Last.Ranking.Entries {
		if m.Matches(e.Member.ID, e.Member.Node.Record.Site) && !e.Eligible() {
			why = append(why, e.Member.ID+": "+e.RefusalReason())
		}
	}
	if len(why) == 0 {
		return strings.TrimSpace(out.Last.Blocked.Reason + " " + out.Last.Note)
	}
	return strings.Join(why, "; ")
}

// excludedNode returns a node that m could move leadership to if it was not excluded, "" for none.
func excludedNode(out whatif.Outcome, m cluster.Move) string {
	for _, e := range out.Last.Ranking.Entries {
		for _, r := range e.Refusals {
			if r.Filter == policy.ExcludedFilter && m.Matches(e.Member.ID, e.Member.Node.Record.Site) {
				return e.Member.ID
			}
		}
	}
	return ""
}

// reelect plans one election by policy alone: without failback, damping and moves.
func (d *draft) reelect() (Plan, error) {
	if err := d.checkNoHardPause(); err != nil {
		return Plan{}, err
	}
	if d.next.Move != nil {
		d.addMessage("ends the move to %s %s", d.next.Move.Target(), d.next.Move.Request)
	}
	d.endReelect("ended by another reelection")
	r := d.newRequest()
	d.next.Reelect = &r
	leader, at := d.leader()
	switch out := d.forecast(); {
	case !out.HasLeader():
		d.addMessage("%s", out.WhyNoLeader())
	case out.Leader.ID == leader:
		d.addMessage("%s (%s) is the best and stays", leader, at)
	default:
		d.addMessage("%s (%s) takes over", out.Leader.ID, out.Leader.Node.Record.Site)
	}
	return d.finish("reelection")
}

// endReelect ends the reelection in force, if there is one.
func (d *draft) endReelect(outcome string) {
	if r := d.next.Reelect; r != nil {
		d.addMessage("ends the reelection %s", r)
		d.next.End(r.ID, "reelection", outcome, d.q.Wall)
		d.next.Reelect = nil
	}
}

// inGroup completes a command that is about the whole group.
func (d *draft) inGroup(command string, args ...any) string {
	return cluster.InGroup(command, cluster.GroupOf(d.q.Options.Group), args...)
}
