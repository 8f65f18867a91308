package cluster

import (
	"reflect"
	"testing"
	"time"
)

const lease = "/c/.leases/n1-1f"

// held returns the snapshot of a deputy, of a fence that n1 holds.
func held(state FenceState) Snapshot {
	s := Snapshot{Self: Incarnation{Name: "n2-0000000000000001-n_0000000002", ID: "n2"}, HolderRead: true}
	s.Elected = Stored[Elected]{Exists: true, Record: Elected{Term: 7, Deputies: []string{"n3", "n2"}}}
	s.Fence = Stored[Fence]{Exists: true, Record: Fence{
		Node: "n1", Host: "h1", Term: 7, State: state, Session: 0x1f, LeaseZnode: lease, LeaseWait: Duration(4 * time.Second), Owed: Duration(3 * time.Second),
		Earlier: []EarlierHolder{{Node: "n0", Term: 6, Wait: Duration(3 * time.Second)}},
	}}
	return s
}

// A record is a claim: only the lease znode of the very session counts, as only that is advanced with its renewals.
func TestWhichHolderCanBeTakenFrom(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Snapshot)
		want   bool
	}{
		"a holder":              {func(*Snapshot) {}, true},
		"a leader":              {func(s *Snapshot) { s.Fence.Record.State = FenceReady }, true},
		"one that has released": {func(s *Snapshot) { s.Fence.Record.State = FenceReleased }, false},
		"one that is silent":    {func(s *Snapshot) { s.Fence.Record.State = FenceSilent }, false},
		"one that was revoked":  {func(s *Snapshot) { s.Fence.Record.State = FenceRevoked }, false},
		"an unreadable fence":   {func(s *Snapshot) { s.Fence.Exists = false }, false},
		"a fence not read":      {func(s *Snapshot) { s.HolderRead = false }, false},
		"no lease znode":        {func(s *Snapshot) { s.Fence.Record.LeaseZnode = "" }, false},
		"of another session":    {func(s *Snapshot) { s.Fence.Record.Session = 2 }, false},
		"of another node":       {func(s *Snapshot) { s.Fence.Record.Node = "n4" }, false},
		"another znode":         {func(s *Snapshot) { s.Fence.Record.LeaseZnode = "/c/nodes/n1-1f" }, false},
		"a relative path":       {func(s *Snapshot) { s.Fence.Record.LeaseZnode = ".leases/n1-1f" }, false},
	} {
		s := held(FenceHeld)
		c.change(&s)
		if got := s.MayBeTaken(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	f := held(FenceHeld).Fence.Record
	good := LeaseZnodeSeen{Znode: lease, Exists: true, Stat: Stat{Owner: 0x1f, Version: 1}}
	if !good.Of(&f) || LeaseZnode("/c", "n1", 0x1f) != lease {
		t.Error("the holder's own lease znode is not taken for it")
	}
	for name, change := range map[string]func(*LeaseZnodeSeen){
		"another znode": func(l *LeaseZnodeSeen) { l.Znode += "0" }, "gone": func(l *LeaseZnodeSeen) { l.Exists = false },
		"foreign": func(l *LeaseZnodeSeen) { l.Stat.Owner = 0 }, "never written": func(l *LeaseZnodeSeen) { l.Stat.Version = 0 },
	} {
		l := good
		if change(&l); l.Of(&f) {
			t.Errorf("%s: taken for the holder's lease", name)
		}
	}
}

// TAKE leaves nothing to wait for of the holder, and everything else as it was. fencing.required fences the holder all the same.
func TestTakeOwesNothingForTheHolder(t *testing.T) {
	s := held(FenceReady)
	ops := Paths{Root: "/c"}.TakeTx(s, LeaseZnodeSeen{Znode: lease}, Elected{Term: 8, Reason: "n1 is silent"})
	after := Snapshot{Fence: ReadFence("/c/leader", ops[2].Data, Stat{Time: time.Unix(1e9, 0)}, true)}
	f := after.Fence.Record
	if f.State != FenceSilent || !f.Led || f.Term != 7 || f.Reason != "n1 is silent" {
		t.Errorf("the fence is %+v (%v)", f, after.Fence.Err)
	}
	if wait, why := after.Owed(5 * time.Second); wait != 3*time.Second || why == "" {
		t.Errorf("a successor waits %s: %s", wait, why)
	}
	want := []EarlierHolder{{Node: "n0", Term: 6, Wait: Duration(3 * time.Second)}, {Node: "n1", Host: "h1", Term: 7}}
	if got := after.Earlier(5 * time.Second); !reflect.DeepEqual(got, want) {
		t.Errorf("earlier holders: %+v", got)
	}
	after.Fence.Record.Owed, after.Fence.Record.Earlier = 0, nil
	if wait, _ := after.Owed(5 * time.Second); wait != 0 {
		t.Errorf("without an earlier holder, a successor waits %s", wait)
	}
	if got := after.Earlier(5 * time.Second); !reflect.DeepEqual(got, want[1:]) {
		t.Errorf("to be fenced: %+v", got)
	}
}

// TAKE waits for every lease that the fence knows of.
func TestTakeWaitsForTheLongestLease(t *testing.T) {
	second := Duration(time.Second)
	for want, f := range map[time.Duration]Fence{
		9 * time.Second: {LeaseWait: 9 * second, Owed: 2 * second}, 8 * time.Second: {LeaseWait: second, Owed: 8 * second},
		7 * time.Second: {Earlier: []EarlierHolder{{Wait: second}, {Wait: 7 * second}}}, 5 * time.Second: {LeaseWait: second},
	} {
		if got := f.TakeWait(5 * time.Second); got != want {
			t.Errorf("%+v: %s, want %s", f, got, want)
		}
	}
}

func TestWhoIsADeputy(t *testing.T) {
	s := held(FenceReady)
	if s.DeputyPlace() != 1 {
		t.Errorf("place %d", s.DeputyPlace())
	}
	s.Heir = Stored[HeirRecord]{Exists: true, Record: HeirRecord{Term: 6, Deputies: []string{"n2"}}}
	if s.DeputyPlace() != 1 {
		t.Error("the deputies of another term count")
	}
	s.Heir.Record.Term = 7
	if s.DeputyPlace() != 0 {
		t.Errorf("place %d by HEIR", s.DeputyPlace())
	}
	s.Self.ID = "n9"
	if s.DeputyPlace() != -1 {
		t.Errorf("place %d of another node", s.DeputyPlace())
	}
	if s.Elected.Err = ErrNoNode; s.Deputies() != nil {
		t.Error("deputies without a decision")
	}
}
