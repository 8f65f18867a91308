package watchdog

import (
	"fmt"
	"time"

	"zkelectd/internal/cluster"
)

// Deputy decides what a member does as a deputy: it watches the lease of the leader. If the leader falls silent, the
// member does the work of the elector until there is a leader again, or another elector has decided (docs/protocol.md,
// Deputies). The elector itself is one.
type Deputy struct {
	self    string // its incarnation
	silence *Silence

	reconnects int       // of the session, when that was last noticed
	asking     bool      // it is being found out whether ZooKeeper answers in time
	may        bool      // the holder is silent, and this member may put an end to its term
	acting     bool      // it does the work of the elector
	before     int64     // Modified of the decision that was in force when it began to act
	due        condition // a decision is due, and nobody has written it
}

// NewDeputy returns a deputy that has seen nothing. reconnects is how often its session has reconnected.
func NewDeputy(self string, opt SilenceOptions, reconnects int) *Deputy {
	return &Deputy{self: self, silence: NewSilence(opt), reconnects: reconnects}
}

// DeputyInput is what a deputy goes by.
type DeputyInput struct {
	Snapshot *cluster.Snapshot
	// Seen is what was read last of the lease znode that [DeputyOutput.Follow] named.
	Seen       cluster.LeaseZnodeSeen
	Reconnects int
	Now        time.Duration
	// RollCallTimeout is how long answers to a roll call may take, see [cluster.RollCall]; 0 in a group that uses none.
	RollCallTimeout time.Duration
	// MaySucceed reports whether the member may put an end to the term, as far as promises are concerned. It is called
	// once the holder is known to be silent, since it may make the member refuse promises.
	MaySucceed func() bool
}

// DeputyOutput is what a deputy wants.
type DeputyOutput struct {
	// Follow is the lease znode to be read after each change; empty for none.
	Follow string
	// Ask is set if a sync, and then a read of that znode, must be sent. [Deputy.Answered] takes the outcome.
	Ask bool
	// CallRoll is set if the roll must be called for the lease that was read last, so that the answers are there when the
	// holder counts as silent.
	CallRoll bool
	// Act is set while the member must read what the elector reads, and do its work.
	Act bool
	// Wake is when to call Observe again if nothing happens; 0 means never.
	Wake time.Duration
}

// Observe decides by the newest snapshot.
func (d *Deputy) Observe(in DeputyInput) (out DeputyOutput) {
	s := in.Snapshot
	if in.Reconnects != d.reconnects {
		d.reconnects = in.Reconnects
		d.silence.Away(in.Now, true)
	}
	place := place(s)
	if f := &s.Fence.Record; place >= 0 && s.MayBeTaken() && f.Incarnation != d.self {
		out.Follow = f.LeaseZnode
	}
	due := d.silence.Observe(s, in.Seen, place, in.Now)
	switch {
	case due > in.Now:
		out.Wake = due
	case due != 0 && !d.silence.Confirmed() && !d.asking:
		d.asking, out.Ask = true, true
	}
	if at := d.rollCallDue(in, place); at > in.Now {
		out.Wake = cluster.Earliest(out.Wake, at)
	} else {
		out.CallRoll = at != 0
	}
	// Not earlier: to refuse promises while ZooKeeper may be away would stop a leader that works on without it.
	if d.may = d.silence.Confirmed() && in.MaySucceed(); d.may && !s.Elector && !d.acting {
		d.acting, d.before = true, s.Elected.Stat.Modified
	}
	if at := d.electionDue(s, place, in.Now); at > in.Now {
		out.Wake = cluster.Earliest(out.Wake, at)
	} else if at != 0 && !d.acting {
		d.acting, d.before = true, s.Elected.Stat.Modified
	}
	led := s.Acting && s.Ready() && !d.silence.Confirmed()
	decided := s.Elected.Record.By != d.self && s.Elected.Stat.Modified != d.before
	d.acting = d.acting && !led && !decided
	out.Act = d.acting
	return out
}

// rollCallDue returns when the roll is to be called for the case that the holder is lost; 0 for never, or if that was
// done.
func (d *Deputy) rollCallDue(in DeputyInput, place int) time.Duration {
	call, called := in.Snapshot.Called()
	lease := in.Snapshot.LeaseAt(in.Seen)
	if in.RollCallTimeout == 0 || lease == 0 || called && call.Lease >= lease { // for a later one: this member reads late
		return 0
	}
	return d.silence.RollCallAt(&in.Snapshot.Fence.Record, place, in.RollCallTimeout)
}

// electionDue returns when this member elects in place of an elector that does not; 0 for never. An elector may be
// lost, or alive while its writes are refused or do not arrive.
func (d *Deputy) electionDue(s *cluster.Snapshot, place int, now time.Duration) time.Duration {
	key := ""
	if place >= 0 && !s.Elector && s.HolderRead && s.Newer() == nil &&
		(!s.Fence.Readable() || s.Ended() || !s.Current.Exists || s.DeclaredSilent(s.Elected.Record.Incarnation)) {
		key = fmt.Sprint(s.Elected.Stat.Modified, s.Fence.Stat.Modified)
	}
	d.due.hold(key, now)
	if key == "" {
		return 0
	}
	at := d.due.since + d.silence.opt.Wait + d.silence.delta(place)
	if call, called := s.Called(); called { // the elector waits for answers
		at += time.Duration(call.Timeout)
	}
	return at
}

// place returns the place of the reader among the deputies; -1 if it is none. The elector is the first one.
func place(s *cluster.Snapshot) int {
	if s.Elector && !s.Acting {
		return 0
	}
	return s.DeputyPlace()
}

// Answered takes the outcome of what [DeputyOutput.Ask] has asked for, began being when it was sent. It reports whether
// the holder is silent: then Observe follows. If ZooKeeper hardly answers this member either, nothing follows from the
// holder's silence.
func (d *Deputy) Answered(in DeputyInput, began time.Duration, err error) (silent bool) {
	d.asking = false
	if err != nil || in.Now-began > d.silence.Limit() || in.Reconnects != d.reconnects {
		d.silence.Away(in.Now, in.Reconnects != d.reconnects)
		return false
	}
	due := d.silence.Observe(in.Snapshot, in.Seen, place(in.Snapshot), in.Now)
	if due == 0 || due > in.Now {
		return false
	}
	d.silence.Confirm(in.Seen)
	return true
}

// Refused notes that TAKE was refused, or is not known to have taken effect.
func (d *Deputy) Refused(now time.Duration) { d.silence.Refused(now) }

// Silent returns the silent holder of the fence in the last snapshot, if it is silent, with the reason in words, and
// what was seen of its lease.
func (d *Deputy) Silent(s *cluster.Snapshot, now time.Duration) (map[string]string, cluster.LeaseZnodeSeen) {
	if !d.may || !d.silence.Confirmed() {
		return nil, cluster.LeaseZnodeSeen{}
	}
	why := fmt.Sprintf("it has not renewed its lease for %s", (now - d.silence.Since()).Round(10*time.Millisecond))
	return map[string]string{s.Fence.Record.Incarnation: why}, d.silence.Seen()
}
