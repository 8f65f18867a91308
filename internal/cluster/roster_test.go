package cluster

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

var rosterStart = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return rosterStart.Add(d) }

// rosterMembers returns members that are registered as ID/NUMBER.
func rosterMembers(names ...string) (list []Member) {
	for _, name := range names {
		id, seq, _ := strings.Cut(name, "/")
		in := Incarnation{Name: fmt.Sprintf("%s-0000000000000001-n_%010s", id, seq), ID: id}
		list = append(list, Member{Incarnation: in, Node: Stored[Node]{Exists: true, Record: Node{ID: id, Site: "dc1"}}})
	}
	return list
}

func (n RosterNode) String() string {
	if n.Left == nil {
		return n.ID
	}
	return fmt.Sprintf("%s %s %s", n.ID, n.Left.How, n.Left.Time.Sub(rosterStart))
}

func TestRosterRemembersMembers(t *testing.T) {
	var r Roster
	at := time.Duration(0)
	see := func(want string, names ...string) {
		t.Helper()
		at += time.Minute
		next, changed := r.Update(rosterMembers(names...), after(at))
		got := strings.Trim(fmt.Sprint(next.Nodes), "[]")
		if before := strings.Trim(fmt.Sprint(r.Nodes), "[]"); got != want || changed != (before != want) {
			t.Errorf("with %v: %q, changed %t, want %q after %q", names, got, changed, want, before)
		}
		r = next
		if _, again := r.Update(rosterMembers(names...), after(at+time.Hour)); again {
			t.Errorf("with %v: it changes again although the members do not", names)
		}
	}
	see("a b", "b/1", "a/2")
	see("a b lost 2m0s", "a/2")
	see("a b lost 2m0s c", "c/3", "a/2")
	see("a b c", "c/3", "a/2", "b/4")
	see("a b c", "c/5", "a/2", "b/4")
	r = r.Leaving("b", "dc1", Left{How: LeftStopped, Time: after(7 * time.Minute), Incarnation: "b-0000000000000001-n_0000000004"})
	see("a b stopped 7m0s c", "c/5", "a/2", "b/4") // it is about to end
	see("a b stopped 7m0s c", "c/5", "a/2")
	see("a b c", "c/5", "a/2", "b/6")
	r = r.Leaving("b", "dc1", Left{How: LeftRemoved, Time: after(10 * time.Minute), Incarnation: "b-0000000000000001-n_0000000006"})
	see("a b c", "c/5", "a/2", "b/6", "b/7") // the same node has registered again
	r = r.Leaving("new", "dc1", Left{How: LeftRemoved, Time: after(11 * time.Minute), Incarnation: "new-0000000000000001-n_0000000008"})
	see("a b c new removed 11m0s", "c/5", "a/2", "b/7")
}

func TestRosterKnowsTheSite(t *testing.T) {
	r, _ := Roster{}.Update(rosterMembers("a/1"), rosterStart)
	moved := rosterMembers("a/2")
	moved[0].Node.Record.Site = "dc2"
	if r, changed := r.Update(moved, rosterStart); !changed || r.Nodes[0].Site != "dc2" {
		t.Errorf("%t %+v", changed, r)
	}
	moved[0].Node = Stored[Node]{Exists: true, Err: fmt.Errorf("damaged")}
	if r, changed := r.Update(moved, rosterStart); changed || r.Nodes[0].Site != "dc1" {
		t.Errorf("an unreadable record: %t %+v", changed, r)
	}
}

// Of the nodes that have left, those that left last are remembered, and never at the cost of members.
func TestRosterIsBounded(t *testing.T) {
	var r Roster
	for i := range MaxLeft + 5 {
		r.Nodes = append(r.Nodes, RosterNode{ID: fmt.Sprintf("old%04d", MaxLeft-i), Left: &Left{How: LeftLost, Time: after(time.Duration(i) * time.Second)}})
	}
	var members []Member
	for i := range 1000 {
		members = append(members, rosterMembers(fmt.Sprintf("n%04d/%d", i, i))...)
	}
	next, changed := r.Update(members, rosterStart)
	if !changed || len(next.Nodes) != MaxLeft+1000 {
		t.Fatalf("%d nodes", len(next.Nodes))
	}
	if slices.ContainsFunc(next.Nodes, func(n RosterNode) bool { return n.ID == "old1000" }) {
		t.Error("the node that left first is still remembered")
	}
	data := EncodeRoster(&next)
	if len(data) > 64<<10 {
		t.Errorf("a roster of %d nodes has %d bytes", len(next.Nodes), len(data))
	}
	if again := ReadRoster("/c/roster", data, Stat{}, true); again.Err != nil || len(again.Record.Nodes) != len(next.Nodes) {
		t.Errorf("%v, %d nodes", again.Err, len(again.Record.Nodes))
	} else if _, changed := again.Record.Update(members, after(time.Hour)); changed {
		t.Error("it changes once it is read again")
	}
}

// Names that no configuration permits come from forged registrations or a forged roster.
func TestForgedNamesAreNotRemembered(t *testing.T) {
	long := strings.Repeat("x", 300)
	members := rosterMembers("a/1", long+"/2", "\xff/3")
	members[0].Node.Record.Site = long + "\xff"
	r := Roster{Nodes: []RosterNode{{ID: long}, {ID: ""}, {ID: "b", Site: "dc1"}, {ID: "b", Site: "dc2"}}}
	next, _ := r.Update(members, rosterStart)
	if len(next.Nodes) != 2 || next.Nodes[0].Site != long[:255] || next.Nodes[1].Site != "dc1" {
		t.Errorf("%+v", next.Nodes)
	}
	var sites []Member
	for i := range 5000 {
		m := rosterMembers(fmt.Sprintf("n%d/%d", i, i))
		m[0].Node.Record.Site = strings.Repeat("\x01", 255)
		sites = append(sites, m...)
	}
	next, _ = Roster{}.Update(sites, rosterStart)
	if read := ReadRoster("/c/roster", EncodeRoster(&next), Stat{}, true); read.Err != nil {
		t.Error(read.Err)
	}
	if _, changed := next.Update(sites, rosterStart); changed {
		t.Error("what does not fit is written again and again")
	}
}

func TestAbsent(t *testing.T) {
	s := Snapshot{Members: rosterMembers("a/1", "new/9"), Roster: Stored[Roster]{Exists: true, Record: Roster{Nodes: []RosterNode{
		{ID: "a", Left: &Left{How: LeftLost}}, {ID: "b"}, {ID: "c", Left: &Left{How: LeftStopped, Time: rosterStart}}, {ID: "d", Left: &Left{How: LeftRemoved, Time: rosterStart}},
	}}}}
	absent, expected := s.Absent()
	if got := fmt.Sprint(len(absent), expected); got != "3 4" || absent[0].ID != "b" || absent[0].Left.How != LeftLost || !absent[0].Left.Time.IsZero() {
		t.Errorf("%s %v", got, absent)
	}
}

func TestUnreadableRosters(t *testing.T) {
	const newer = `{"v":99,"nodes":[]}`
	if s := ReadRoster("/c/roster", []byte(newer), Stat{}, true); s.Newer() == nil {
		t.Errorf("%v", s.Err)
	}
	if s := ReadRoster("/c/roster", []byte("\x1f\x8bgarbage"), Stat{}, true); s.Err == nil || !strings.Contains(s.Err.Error(), "/c/roster") {
		t.Errorf("%v", s.Err)
	}
	if s := ReadRoster("/c/roster", nil, Stat{}, false); s.Exists || s.Err != nil {
		t.Errorf("%+v", s)
	}
}

// A machine that comes and goes says when it is to be forgotten; the others are remembered.
func TestRosterForgets(t *testing.T) {
	members := rosterMembers("a/1", "b/2", "c/3")
	for i := range members {
		if members[i].ID != "a" {
			members[i].Node.Record.ForgetAfter = Duration(time.Hour)
		}
	}
	r, _ := Roster{}.Update(members, after(0))
	if at := r.NextForgotten(); !at.IsZero() {
		t.Errorf("a member is forgotten at %s", at)
	}
	r, _ = r.Update(members[2:], after(time.Minute))
	if at := r.NextForgotten(); !at.Equal(after(61 * time.Minute)) {
		t.Errorf("forgotten at %s", at)
	}
	if _, changed := r.Update(members[2:], after(60*time.Minute)); changed {
		t.Error("it is forgotten early")
	}
	r, changed := r.Update(members[2:], after(61*time.Minute))
	if got := fmt.Sprint(r.Nodes); !changed || got != "[a lost 1m0s c]" {
		t.Errorf("%t, %s", changed, got)
	}
	if back, _ := r.Update(rosterMembers("b/9", "c/3"), after(2*time.Hour)); fmt.Sprint(back.Nodes) != "[a lost 1m0s b c]" {
		t.Errorf("%s", back.Nodes)
	}
	// A forged duration does not overflow.
	r.Nodes[0].ForgetAfter = math.MaxInt64
	if at := r.NextForgotten(); !at.Equal(after(time.Minute + MaxRequestTime)) {
		t.Errorf("forgotten at %s", at)
	}
}
