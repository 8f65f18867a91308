package cluster

import (
	"errors"
	"testing"
)

func TestWhichHeirIsPublished(t *testing.T) {
	b, c := Heir{Node: "b", Incarnation: "b-n_2"}, Heir{Node: "c", Incarnation: "c-n_3"}
	for name, x := range map[string]struct {
		change func(*Snapshot)
		want   Heir
		known  bool
	}{
		"by ELECT":              {func(*Snapshot) {}, b, true},
		"by HEIR":               {func(s *Snapshot) { s.Heir = Stored[HeirRecord]{Exists: true, Record: HeirRecord{Term: 7, Heir: c}} }, c, true},
		"nobody, by HEIR":       {func(s *Snapshot) { s.Heir = Stored[HeirRecord]{Exists: true, Record: HeirRecord{Term: 7}} }, Heir{}, true},
		"of another term":       {func(s *Snapshot) { s.Heir = Stored[HeirRecord]{Exists: true, Record: HeirRecord{Term: 6, Heir: c}} }, b, true},
		"by no record":          {func(s *Snapshot) { s.Heir = Stored[HeirRecord]{Record: HeirRecord{Term: 7, Heir: c}} }, b, true},
		"by an older elector":   {func(s *Snapshot) { s.Elected.Record.Heir = nil }, Heir{}, false},
		"no decision":           {func(s *Snapshot) { s.Elected.Exists = false }, Heir{}, false},
		"by a damaged decision": {func(s *Snapshot) { s.Elected.Err = errors.New("damaged") }, Heir{}, false},
	} {
		s := Snapshot{Self: Incarnation{Name: "b-n_2"}}
		s.Elected = Stored[Elected]{Exists: true, Record: Elected{Term: 7, Incarnation: "a-n_1", Heir: &b}}
		x.change(&s)
		if got, known := s.NextLeader(); got != x.want || known != x.known {
			t.Errorf("%s: %+v, %t", name, got, known)
		}
		if got := s.SelfIsHeir(); got != (x.want == b) {
			t.Errorf("%s: is the heir: %t", name, got)
		}
	}
	s := Snapshot{Self: Incarnation{Name: "b-n_2"}}
	s.Elected = Stored[Elected]{Exists: true, Record: Elected{Term: 7, Incarnation: "b-n_2", Heir: &b}}
	if s.SelfIsHeir() {
		t.Error("the leader is its own heir")
	}
	s.Elected.Record.Incarnation, s.SelfLost = "a-n_1", true
	if s.SelfIsHeir() {
		t.Error("a member whose registration is gone is the heir")
	}
	if read := ReadStored[HeirRecord]("/c/heir", []byte(`{"v":1,"term":-1}`), Stat{}, true); read.Err == nil {
		t.Error("an impossible term is read")
	}
}

func TestTheGroupAfterAnElection(t *testing.T) {
	var s Snapshot
	s.Elected.Stat, s.Fence.Stat = Stat{Version: 3, Modified: 30}, Stat{Version: 4, Modified: 40}
	e := Elected{Term: 7, Node: "a", Site: "dc1", Incarnation: "a-n_1", Cause: CauseFailure}
	after := s.AfterElection(e)
	if !after.Ready() || after.Ended() || after.Elected.Record.Cause != CauseFailure || after.Elected.Stat != (Stat{Version: 4, Modified: 30}) || after.Fence.Stat != s.Fence.Stat {
		t.Errorf("%+v", after)
	}
	if f, c := after.Fence.Record, after.Current.Record; f.Term != 7 || f.Node != "a" || f.Site != "dc1" || f.Incarnation != "a-n_1" ||
		c.Term != 7 || c.Node != "a" || c.Site != "dc1" || c.Incarnation != "a-n_1" || c.State != CurrentReady || !after.Current.Exists {
		t.Errorf("%+v, %+v", f, c)
	}
	if s.Elected.Exists || s.Elected.Stat.Version != 3 {
		t.Error("changed in place")
	}
}

// Only the loss of its holder ends current.
func TestTheGroupWithoutAMember(t *testing.T) {
	a, b := Member{Incarnation: Incarnation{ID: "a", Name: "a-n_1"}}, Member{Incarnation: Incarnation{ID: "b", Name: "b-n_2"}}
	s := Snapshot{Members: []Member{a, b}, Current: Stored[Current]{Exists: true, Record: Current{Incarnation: "a-n_1"}}}
	for lost, current := range map[string]bool{"a": false, "b": true} {
		after := s.Without(func(m Member) bool { return m.ID == lost })
		if len(after.Members) != 1 || after.Members[0].ID == lost || after.Current.Exists != current {
			t.Errorf("without %s: %+v, current: %t", lost, after.Members, after.Current.Exists)
		}
	}
	if len(s.Members) != 2 || !s.Current.Exists {
		t.Error("changed in place")
	}
}
