package cluster

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// stuck returns a group whose last leader and members are all gone.
func stuck() Snapshot {
	f := boundFence()
	f.LeaseWait, f.Host = Duration(4*time.Second), "h0"
	return Snapshot{
		Fence:   Stored[Fence]{Exists: true, Stat: Stat{Version: 9}, Record: f},
		Elected: Stored[Elected]{Exists: true, Record: Elected{Term: 8, Node: "n3", Incarnation: "n3-n_3"}},
		Members: []Member{{Incarnation: Incarnation{Name: "n3-n_3", ID: "n3"}, Node: Stored[Node]{Exists: true, Record: Node{Failsafe: &FailsafeNode{Key: "k3"}}}}},
	}
}

func TestOnlyAStuckGroupIsForced(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Snapshot)
		want   string // empty if it is stuck
	}{
		"stuck":                      {func(*Snapshot) {}, ""},
		"nobody is registered":       {func(s *Snapshot) { s.Members = nil }, ""},
		"revoked":                    {func(s *Snapshot) { s.Fence.Record.State = FenceRevoked }, ""},
		"silent":                     {func(s *Snapshot) { s.Fence.Record.State = FenceSilent }, ""},
		"a member without its state": {func(s *Snapshot) { s.Members[0].ID = "n1" }, ""},
		"a member without failsafe":  {func(s *Snapshot) { s.Members[0].ID, s.Members[0].Node.Record.Failsafe = "n1", nil }, ""},
		"a member": {func(s *Snapshot) {
			s.Members[0].ID, s.Members[0].Node.Record.Failsafe = "n2", &FailsafeNode{Key: "k2"}
		}, "n2 is registered"},
		"the last leader": {func(s *Snapshot) {
			s.Members[0].ID, s.Members[0].Node.Record.Failsafe = "n0", &FailsafeNode{Key: "k0"}
		}, "n0 is registered"},
		"its session":       {func(s *Snapshot) { s.Members[0].ID, s.Members[0].Name = "n0", "n0-n_0" }, "the session of n0 has not ended"},
		"a leader":          {func(s *Snapshot) { s.Current.Exists = true }, "there is a leader or a candidate"},
		"no promises":       {func(s *Snapshot) { s.Fence.Record.Failsafe = nil }, "nobody has promised anything"},
		"no members":        {func(s *Snapshot) { s.Fence.Record.Failsafe.Members = nil }, "nobody has promised anything"},
		"released":          {func(s *Snapshot) { s.Fence.Record.State = FenceReleased }, "n0 has released leadership in term 7"},
		"vetoed":            {func(s *Snapshot) { s.Fence.Record.Failsafe.Veto = "n2" }, "n2 has already allowed another member"},
		"a stranger's veto": {func(s *Snapshot) { s.Fence.Record.Failsafe.Veto = "n9" }, ""},
		"no fence":          {func(s *Snapshot) { s.Fence = Stored[Fence]{} }, "the fence is missing or damaged"},
		"a damaged fence":   {func(s *Snapshot) { s.Fence.Err = errors.New("damaged") }, "the fence is missing or damaged"},
		"a candidate": {func(s *Snapshot) {
			s.Current.Exists, s.Current.Record.Term = true, 8
		}, "znode current exists, of term 8"},
		"a newer fence": {func(s *Snapshot) {
			s.Fence = ReadStored[Fence]("/g/leader", []byte(`{"v":3}`), Stat{}, true)
		}, "upgrade this host"},
	} {
		s := stuck()
		c.change(&s)
		switch err := s.CheckStuck(); {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// A forced term is over for every candidate, which waits as after any leader that has not released.
func TestAForcedTermIsOver(t *testing.T) {
	s := stuck()
	s.Fence.Record.Owed, s.Fence.Record.Earlier = Duration(time.Second), []EarlierHolder{{Node: "n5", Wait: Duration(time.Second)}}
	by := Forced{By: "ann@host", Reason: "rack 7", Time: time.Unix(1000, 0).UTC()}
	past := Stored[History]{Exists: true, Stat: Stat{Version: 4}, Record: History{Terms: []PastTerm{{Term: 6}, {Term: 7}}}}
	read := past.Record.Terms
	if h := past.Record; h.Force(5, by) || !past.Record.Force(7, by) || read[1].Forced != nil {
		t.Errorf("history %+v", past.Record)
	}
	ops := Paths{Root: "/g"}.ForceTx(s, by, &past)
	if len(ops) != 2 || ops[0].Version != 9 || ops[1].Version != 4 || ops[1].Path != "/g/history" {
		t.Fatalf("%+v", ops)
	}
	if s.Fence.Record.Failsafe.Veto != "" || s.Fence.Record.State != FenceReady {
		t.Error("the snapshot was changed")
	}
	h, err := DecodeHistory("/g/history", ops[1].Data)
	if err != nil || h.Terms[0].Forced != nil || h.Terms[1].Forced == nil || *h.Terms[1].Forced != by {
		t.Errorf("%v, %+v", err, h)
	}
	if h.Merge([]PastTerm{{Term: 7}}, 7); h.Terms[1].Forced == nil {
		t.Error("an elector forgets it")
	}
	s.Fence = ReadStored[Fence]("/g/leader", ops[0].Data, Stat{Version: 10, Time: time.Now()}, true)
	f := s.Fence.Record
	if right := f.Succession("n9", ""); right != SuccessionFree || !f.Led || !f.Requested || !strings.Contains(f.Reason, "ann@host") || !strings.Contains(f.Reason, "rack 7") {
		t.Errorf("right %d, %+v", right, f)
	}
	if wait, _ := s.Owed(time.Second); wait != 4*time.Second {
		t.Errorf("the successor waits %s", wait)
	}
	if err := s.CheckStuck(); err == nil {
		t.Error("it is still stuck")
	}
	if ids := f.FailsafeNodes(); !slices.Equal(ids, []string{"n0", "n1", "n2", "n5"}) {
		t.Errorf("nodes %q", ids)
	}
	if len((Paths{Root: "/g"}).ForceTx(stuck(), by, nil)) != 1 {
		t.Error("without a history")
	}
}
