package group

import (
	"context"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/sys/boottime"
)

// RollCall is how an instance takes part in roll calls (docs/protocol.md, The roll call).
type RollCall struct {
	// Timeout is how long answers may take, if this member calls the roll as a deputy. It must not be 0.
	Timeout time.Duration
	// Measure measures the score of this host. It is called in another goroutine, and may block until its context ends.
	Measure func(context.Context) (float64, error)
}

// timeout returns how long answers may take; 0 if the instance takes no part.
func (r *RollCall) timeout() time.Duration {
	if r == nil {
		return 0
	}
	return r.Timeout
}

// rollCalls answers the roll calls that a member sees. It belongs to the member's loop.
type rollCalls struct {
	m      *Member
	seen   cluster.RollCallSeen
	number string             // of the one that was answered last, or is being answered
	stop   context.CancelFunc // ends its measuring; nil before the first
}

// observe takes a new snapshot. If it has another roll call, the score is measured for that one, and no longer for the
// one before.
func (r *rollCalls) observe(s *cluster.Snapshot) {
	r.seen.Observe(s, boottime.Now())
	m := r.m
	call, called := s.Called()
	if m.opt.RollCall == nil || m.node == nil || !called || call.Number == r.number {
		return
	}
	r.end()
	r.number = call.Number
	ctx, cancel := context.WithTimeout(m.background.ctx, time.Duration(call.Timeout))
	r.stop = cancel
	var score float64
	var err error
	m.background.run(0, func(context.Context) {
		defer cancel()
		score, err = m.opt.RollCall.Measure(ctx)
	}, func() {
		if r.number == call.Number {
			r.answer(score, err)
		}
	})
}

// answer publishes the answer to the present roll call at once: an election waits for it.
func (r *rollCalls) answer(score float64, err error) {
	a := &cluster.Answer{Number: r.number}
	if err != nil {
		a.Why = err.Error()
		r.m.group.log.Warn("no score could be measured for an election: this member ranks last", "err", err)
	} else {
		a.Score = &score
	}
	r.m.instance.answer.Store(a)
	r.m.node.publishNow(func(error) {}) // a failed write is logged and repeated
}

// end ends the measuring that is under way.
func (r *rollCalls) end() {
	if r.stop != nil {
		r.stop()
	}
}
