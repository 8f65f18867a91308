package electing

import (
	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
)

// noRoom is why a preemption waits.
const noRoom = "as many groups as this host moves at once already move by its decision"

// decideWithLimits makes a decision. A preemption needs a permit, which is kept until its new leader is READY.
func (e *Elector) decideWithLimits(in elector.Input) elector.Decision {
	in.Succeeded = e.succeeded
	if e.opt.Moves == nil {
		return e.core.Decide(in)
	}
	if s := &in.Snapshot; e.moving != 0 && (s.Ready() || !s.Elected.Readable() || s.Elected.Record.Term != e.moving) {
		e.EndMove()
	}
	if e.move == nil || !e.move.Granted() {
		in.NoRoom = noRoom
	}
	d := e.core.Decide(in)
	if d.AwaitsRoom && e.move == nil {
		if e.move = e.opt.Moves.Request(e.opt.Wake); e.move.Granted() {
			in.NoRoom = ""
			d = e.core.Decide(in)
		}
	}
	switch {
	case d.Elect != nil && d.Elect.Cause == cluster.CausePreempt:
		e.moving = d.Elect.Term
	case !d.AwaitsRoom && !d.AwaitsAnswers && e.moving == 0:
		e.EndMove() // no longer wanted
	}
	return d
}

// EndMove gives back the permit for a preemption.
func (e *Elector) EndMove() {
	if e.move != nil {
		e.move.Release()
	}
	e.move, e.moving = nil, 0
}
