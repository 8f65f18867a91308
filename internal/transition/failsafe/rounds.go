package failsafe

import (
	"slices"
	"time"

	"zkelectd/internal/cluster"
)

// RoundsOptions describe the term that rounds are for.
type RoundsOptions struct {
	Group  string
	Term   int64
	Holder string
	// Start is random for each instance.
	Start uint64
	// Lease is how long the work may go on after a round was sent, if all have promised in it; Wait how long each
	// promise lasts.
	Lease, Wait time.Duration
}

// Set is what SETM writes: the members that must promise, and the limit.
type Set struct {
	Members []cluster.FailsafeMember
	Max     time.Duration
}

// Equal reports whether two sets are the same.
func (s Set) Equal(o Set) bool { return s.Max == o.Max && slices.Equal(s.Members, o.Members) }

// Rounds is the leader's side in one term: which sets of members may be in force, and who has promised in which round.
// It must be used by one goroutine only.
type Rounds struct {
	opt    RoundsOptions
	acked  Set
	maybe  []Set // written by a SETM of unknown outcome, or under way
	next   uint64
	rounds []round
}

// round is one that may still extend the lease.
type round struct {
	number  uint64
	sent    time.Duration
	granted map[string]bool // by incarnation
}

// NewRounds returns the rounds of a term that has just been acquired: nobody has to promise yet, so nothing extends the
// lease.
func NewRounds(opt RoundsOptions) *Rounds { return &Rounds{opt: opt} }

// Sending notes that a SETM is about to be sent: from now on its set may be in force.
func (r *Rounds) Sending(s Set) { r.maybe = append(r.maybe, s) }

// NotSent notes that the last SETM was never sent.
func (r *Rounds) NotSent() { r.maybe = r.maybe[:max(0, len(r.maybe)-1)] }

// Acknowledged notes that a set is in force, and that no earlier SETM can follow: SETM was acknowledged, or its set was
// read in a version that is newer than the one acknowledged last. To read the older version proves nothing.
func (r *Rounds) Acknowledged(s Set) { r.acked, r.maybe = s, nil }

// Acked returns the set that was acknowledged last.
func (r *Rounds) Acked() Set { return r.acked }

// Settled reports whether only the acknowledged set may be in force.
func (r *Rounds) Settled() bool { return len(r.maybe) == 0 }

// Possible reports whether this set may be in force, with its limit: those who read the fence rely on that limit (S1).
func (r *Rounds) Possible(s Set) bool { return slices.ContainsFunc(r.sets(), s.Equal) }

// Members returns everybody who must promise: the members of all sets that may be in force. It returns none while one
// of these is empty: then anybody may take over.
func (r *Rounds) Members() []cluster.FailsafeMember {
	for _, s := range r.sets() {
		if len(s.Members) == 0 {
			return nil
		}
	}
	return r.All()
}

// sets returns the sets that may be in force.
func (r *Rounds) sets() []Set { return append([]Set{r.acked}, r.maybe...) }

// All returns the members of all sets that may be in force, also if one of these is empty.
func (r *Rounds) All() []cluster.FailsafeMember {
	var all []cluster.FailsafeMember
	for _, s := range r.sets() {
		for _, m := range s.Members {
			if !slices.Contains(all, m) {
				all = append(all, m)
			}
		}
	}
	return all
}

// Max returns the lowest limit of the sets that may be in force; 0 for none.
func (r *Rounds) Max() time.Duration {
	var least time.Duration
	for _, s := range r.sets() {
		least = cluster.Earliest(least, s.Max)
	}
	return least
}

// maxRounds bounds how many rounds may wait for replies.
const maxRounds = 16

// Begin begins a round at now and returns what to send; nothing if no round can extend the lease.
func (r *Rounds) Begin(now time.Duration) []Message {
	members := r.Members()
	if len(members) == 0 {
		return nil
	}
	r.next++
	r.rounds = slices.DeleteFunc(r.rounds, func(x round) bool { return now >= x.sent+r.opt.Lease })
	if len(r.rounds) >= maxRounds {
		r.rounds = slices.Delete(r.rounds, 0, len(r.rounds)-maxRounds+1)
	}
	r.rounds = append(r.rounds, round{r.next, now, make(map[string]bool, len(members))})
	out := make([]Message, 0, len(members))
	for _, m := range members {
		out = append(out, Message{To: m, Request: r.request(m, r.next)})
	}
	return out
}

func (r *Rounds) request(m cluster.FailsafeMember, number uint64) Request {
	return Request{
		Group: r.opt.Group, Term: r.opt.Term, Holder: r.opt.Holder, Member: m.Incarnation, Round: number, Start: r.opt.Start,
		Wait: cluster.Duration(r.opt.Wait),
	}
}

// Reply notes a reply. It returns until when the work may go on because of it, counted from the sending of the round; 0
// if not all who must promise have done so in that round.
func (r *Rounds) Reply(rep Reply) time.Duration {
	for i := range r.rounds {
		x := &r.rounds[i]
		if !rep.OK || rep.Request.Dry ||
			rep.Request != r.request(cluster.FailsafeMember{Incarnation: rep.Request.Member}, x.number) {
			continue
		}
		x.granted[rep.Request.Member] = true
		members := r.Members()
		if len(members) == 0 ||
			slices.ContainsFunc(members, func(m cluster.FailsafeMember) bool { return !x.granted[m.Incarnation] }) {
			return 0
		}
		return x.sent + r.opt.Lease
	}
	return 0
}

// Concerns reports whether a reply is one to these rounds, whatever it says.
func (r *Rounds) Concerns(rep Reply) bool {
	return slices.ContainsFunc(r.rounds, func(x round) bool {
		return rep.Request == r.request(cluster.FailsafeMember{Incarnation: rep.Request.Member}, x.number)
	})
}
