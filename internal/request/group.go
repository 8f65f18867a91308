package request

import (
	"errors"
	"fmt"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/whatif"
)

// Pause keeps policy from moving the leader; hard keeps even a dead one from being replaced.
func Pause(q whatif.Question, o Options, hard bool) (Plan, error) {
	d, err := newDraft(q, o)
	if err != nil {
		return Plan{}, err
	}
	if before := d.next.Pause; before != nil {
		d.say("replaces the pause %s", before.Request)
	}
	d.next.Pause = &cluster.Pause{Request: d.number(), Hard: hard}
	if hard {
		d.say("paused hard%s: nobody is elected, not even for a leader that dies", d.lasting())
		return d.finish("hard pause")
	}
	d.say("paused%s: policy does not move the leader; a leader that dies is still replaced", d.lasting())
	return d.finish("pause")
}

// Resume ends a pause.
func Resume(q whatif.Question, o Options) (Plan, error) {
	d, err := newDraft(q, o)
	if err != nil {
		return Plan{}, err
	}
	p := d.next.Pause
	if p == nil {
		return Plan{}, errors.New("the group is not paused")
	}
	d.say("ended: the pause %s", p.Request)
	d.next.End(p.ID, "pause", "ended by "+o.By, q.Wall)
	d.next.Pause = nil
	return d.finish("resume")
}

// Reelect has the election run once by policy alone, without failback, damping and moves.
func Reelect(q whatif.Question, o Options) (Plan, error) {
	d, err := newDraft(q, o)
	if err == nil {
		err = d.moving()
	}
	if err != nil {
		return Plan{}, err
	}
	if d.next.Move != nil {
		d.say("ends the move to %s %s", d.next.Move.Target(), d.next.Move.Request)
	}
	number := d.number()
	d.next.Reelect = &number
	leader, at := d.leader()
	switch out := d.foresee(); {
	case !out.Led():
		d.say("nobody may lead: %s", elector.Refusals(out.Last.Ranking))
	case out.Leader.ID == leader:
		d.say("%s (%s) is the best and stays", leader, at)
	default:
		d.say("%s (%s) takes over", out.Leader.ID, out.Leader.Node.Record.Site)
	}
	return d.finish("election")
}

// ClearStrikes clears the strikes of a node, or of all where node is empty.
func ClearStrikes(q whatif.Question, o Options, node string) (Plan, error) {
	d, err := newDraft(q, o)
	if err != nil {
		return Plan{}, err
	}
	rec := q.Snapshot.Elected.Record
	for _, x := range rec.Exclusions {
		if node == "" || x.Node == node {
			d.say("cleared: strike %d of %s: %s", x.Strikes, x.Node, x.Reason)
		}
	}
	if len(d.plan.Messages) == 0 {
		if node == "" {
			return Plan{}, errors.New("no node has strikes")
		}
		return Plan{}, fmt.Errorf("%s has no strikes", node)
	}
	if d.next.Full() {
		return Plan{}, errors.New("there are too many requests: 'zkelectd uncordon' some first")
	}
	d.next.ClearedStrikes = append(d.next.ClearedStrikes, cluster.ClearedStrikes{Request: d.number(), Node: node, Term: rec.Term})
	if node == "" {
		return d.finish("clear-strikes of all")
	}
	return d.finish("clear-strikes of " + node)
}
