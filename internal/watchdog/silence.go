package watchdog

import (
	"time"

	"zkelectd/internal/cluster"
)

// Silence finds a holder whose lease is over because it has not renewed it (docs/protocol.md, The renewal is seen;
// TAKE).
//
// Every renewal advances the lease znode that the fence names. So as long as a member sees that znode and the fence
// unchanged, no lease can have been granted later than what it sees: once W has passed since it received the answers
// that showed them, all work of the holder is dead. That moment, the sighting, is later than the commit that it shows,
// which is later than the sending that the lease counts from. A reader that lags behind, or is suspended, only makes it
// later. A change of either begins a new sighting.
type Silence struct {
	opt SilenceOptions

	pair      pair
	at        time.Duration          // the sighting; 0 if there is none
	witnessed bool                   // it has begun with a change
	missed    bool                   // the next change may have happened long before it is seen
	refusals  int                    // of TAKE for this pair
	seen      cluster.LeaseZnodeSeen // what was confirmed; At is 0 if nothing was
	notYet    time.Duration          // not before this, since ZooKeeper may have been away
}

// SilenceOptions are the times of the member that watches.
type SilenceOptions struct {
	// Wait is its own W, or election.lost_after if that is longer.
	Wait time.Duration
	// Renew is how often a leader renews.
	Renew time.Duration
	// Session is its session timeout.
	Session time.Duration
}

// pair identifies what was sighted. The transaction ids tell a znode that was deleted and created again from the one
// before.
type pair struct {
	znode                      string
	owner                      int64
	version                    int32
	znodeCreated, znodeChanged int64
	fenceCreated, fenceChanged int64
}

// NewSilence returns what has seen nothing.
func NewSilence(opt SilenceOptions) *Silence { return &Silence{opt: opt} }

// Observe takes a snapshot and what was read of the lease znode, each as it was received, and returns when the holder
// counts as silent; 0 for never. place is the member's place among the deputies, and now the time at which the snapshot
// was received at the latest.
func (s *Silence) Observe(snap *cluster.Snapshot, seen cluster.LeaseZnodeSeen, place int,
	now time.Duration) time.Duration {
	f := &snap.Fence.Record
	if place < 0 || !snap.MayBeTaken() || !seen.Of(f) || f.Incarnation == snap.Self.Name {
		*s = Silence{opt: s.opt, notYet: s.notYet}
		return 0
	}
	p := pair{f.LeaseZnode, seen.Stat.Owner, seen.Stat.Version, seen.Stat.Created, seen.Stat.Modified,
		snap.Fence.Stat.Created, snap.Fence.Stat.Modified}
	if p != s.pair {
		at := max(now, seen.At)
		if s.at != 0 && s.sameFence(snap) {
			at = seen.At // the fence was known before: the answer about the lease znode is the later one of the two
		}
		*s = Silence{opt: s.opt, notYet: s.notYet, pair: p, at: at, witnessed: s.at != 0 && !s.missed}
	}
	return max(s.at+f.TakeWait(s.opt.Wait)+s.delta(place), s.notYet)
}

// RollCallAt returns when the roll is called because the holder, whose fence is f, seems to fall silent: as late as the
// answers may take, timeout, but not before its work is killed. It returns 0 if no lease is watched.
func (s *Silence) RollCallAt(f *cluster.Fence, place int, timeout time.Duration) time.Duration {
	if s.at == 0 {
		return 0
	}
	wait, killed := f.TakeWait(s.opt.Wait), f.KillWait(s.opt.Wait)
	return max(s.at+max(killed, wait-timeout)+s.delta(place), s.notYet)
}

// delta returns how much later than the first deputy the one at a place acts.
func (s *Silence) delta(place int) time.Duration {
	return time.Duration(place) * max(s.opt.Renew/2, minDelta)
}

// sameFence reports whether the fence is still the one of the sighting.
func (s *Silence) sameFence(snap *cluster.Snapshot) bool {
	return snap.Fence.Stat.Created == s.pair.fenceCreated && snap.Fence.Stat.Modified == s.pair.fenceChanged
}

// minDelta is the least time between the attempts of two deputies.
const minDelta = 100 * time.Millisecond

// Confirm notes that the holder is silent: what was sighted is unchanged, and ZooKeeper answers. seen is what was read
// of the lease znode.
func (s *Silence) Confirm(seen cluster.LeaseZnodeSeen) { s.seen = seen }

// Confirmed reports whether the holder is silent.
func (s *Silence) Confirmed() bool { return s.seen.At != 0 }

// Seen returns what was confirmed, with the time of the sighting instead of that of the confirmation. Since returns
// that time.
func (s *Silence) Seen() cluster.LeaseZnodeSeen {
	seen := s.seen
	if s.Confirmed() {
		seen.At, seen.Witnessed = s.at, s.witnessed
	}
	return seen
}

// Since returns the time of the sighting.
func (s *Silence) Since() time.Duration { return s.at }

// Refused notes that TAKE was refused, or is not known to have taken effect: what was confirmed must be read again, and
// the attempts become rarer.
func (s *Silence) Refused(now time.Duration) {
	s.notYet, s.seen = max(s.notYet, now+minDelta<<min(s.refusals, 6)), cluster.LeaseZnodeSeen{}
	s.refusals++
}

// Away notes that ZooKeeper could not be reached until now, or hardly: perhaps the holder could not renew for the same
// reason, and is about to. It gets two renewal intervals for that, and after a reconnect as long as its client may take
// to connect again.
func (s *Silence) Away(now time.Duration, reconnected bool) {
	pause := 2 * s.opt.Renew
	if reconnected {
		s.missed = true
		pause = max(pause, s.opt.Session/3)
	}
	s.notYet = max(s.notYet, now+pause)
}

// Limit returns how long an answer of ZooKeeper may take before nothing follows from the holder's silence.
func (s *Silence) Limit() time.Duration { return max(s.opt.Renew/2, minDelta) }
