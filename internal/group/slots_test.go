package group

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/group/electing"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
	"zkelectd/internal/store/storetest"
	"zkelectd/internal/work/worker"
)

// No more than per_node members are admitted at a time. The others are woken when one has left.
func TestAdmission(t *testing.T) {
	var woken []int
	r := &room{perNode: 2, wake: func(n int) { woken = append(woken, n) }, live: make([]bool, 3)}
	if !r.admit(0) || !r.admit(2) || r.admit(1) || !r.admit(2) {
		t.Error("not exactly two are admitted")
	}
	if r.leave(1); len(woken) != 0 {
		t.Errorf("woken: %v", woken)
	}
	if r.leave(2); !slices.Equal(woken, []int{0, 1}) {
		t.Errorf("woken: %v", woken)
	}
	if !r.admit(1) || r.admit(2) {
		t.Error("the place is not free for another one")
	}
	var none *room
	none.leave(0)
	if !none.admit(0) {
		t.Error("a group without slots is affected")
	}
}

// slotSession is the part of a slot in a session, with all hints of the session.
type slotSession struct {
	memorySession
	wake  chan struct{}
	share func() // gives what the session has to all parts

	mu    sync.Mutex
	hints cluster.Hints
}

func (s *slotSession) Wake() <-chan struct{} { return s.wake }

func (s *slotSession) TakeHints() cluster.Hints {
	s.share()
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.hints
	s.hints = cluster.Hints{}
	return h
}

func (s *slotSession) add(h cluster.Hints) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hints.All = s.hints.All || h.All
	for path := range h.Paths {
		s.hints.Add(path)
	}
}

// shareSession returns two parts of a session. As with a real one, a part that has read something gets all hints of earlier changes: what
// is read is only complete with those.
func shareSession(conn *storetest.Session) (parts [2]*slotSession) {
	var sharing sync.Mutex // nobody misses hints that another one is sharing
	share := func() {
		sharing.Lock()
		defer sharing.Unlock()
		h := conn.TakeHints()
		for _, s := range parts {
			s.add(h)
		}
	}
	for n := range parts {
		parts[n] = &slotSession{memorySession: memorySession{conn}, wake: make(chan struct{}, 1), share: share}
	}
	go func() { // ends with the session
		for {
			select {
			case <-conn.Wake():
			case <-conn.Done():
				return
			}
			for _, s := range parts {
				select {
				case s.wake <- struct{}{}:
				default:
				}
			}
		}
	}()
	return parts
}

// joinSlots runs an instance of a group with two slots. Each slot has a post_stop hook.
func joinSlots(t *testing.T, server *storetest.Server, id string, postStop [2][]string) (i *Instance, over chan error) {
	t.Helper()
	return joinSlotsWithStop(t, server, id, 0, postStop)
}

// joinSlotsWithStop is joinSlots with a stop timeout: with one, the members wait for their successors.
func joinSlotsWithStop(t *testing.T, server *storetest.Server, id string, stop time.Duration, postStop [2][]string) (i *Instance, over chan error) {
	t.Helper()
	conn, p := server.Connect(), cluster.Paths{Root: "/g"}
	slots, err := store.EnsureSlots(t.Context(), conn, p, cluster.SlotSize{Count: 2, PerNode: 2}, id)
	if err != nil {
		t.Fatal(err)
	}
	r, sessions := Registration{Budget: budgetFor(t, stop), Slots: slots}, shareSession(conn)
	for n := range 2 {
		g := newGroup(id, p.OfSlot(n))
		r.Settings = g.opt.Settings
		work := worker.Spec{Hooks: worker.Hooks{PostStop: postStop[n], Timeout: time.Minute}}
		r.Members = append(r.Members, MemberSetup{Group: g, Session: sessions[n], Guard: &fakeGuard{}, Options: memberOptions(work)})
	}
	if i, err = Register(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	over = make(chan error, 1)
	go func() { over <- i.Run() }()
	t.Cleanup(func() {
		i.Stop("the test is over")
		<-over
		conn.Close(context.Background())
	})
	return i, over
}

// The slots of an instance end together: until then, each loop goes on as the elector of its slot.
func TestASlotHasAnElectorWhileAnotherStops(t *testing.T) {
	server := storetest.NewServer()
	init := server.Connect()
	defer init.Close(t.Context())
	for n := range 2 {
		if err := store.Init(t.Context(), init, cluster.Paths{Root: "/g"}.OfSlot(n), "the test"); err != nil {
			t.Fatal(err)
		}
	}
	free := filepath.Join(t.TempDir(), "free")
	a, over := joinSlots(t, server, "a", [2][]string{nil, {"sh", "-c", "until [ -e " + free + " ]; do sleep 0.01; done"}})
	leads := func(i *Instance, n int) func(status.Daemon) bool {
		return func(status.Daemon) bool { return i.members[n].group.View().Leads() }
	}
	first := &member{group: a.members[0].group}
	first.until(t, "a leads slot 0", leads(a, 0))
	first.until(t, "a leads slot 1", leads(a, 1))
	a.Stop("the test")
	first.until(t, "slot 0 has ended", func(status.Daemon) bool { return a.members[0].Done() })
	b, _ := joinSlots(t, server, "b", [2][]string{})
	first.until(t, "b leads slot 0", leads(b, 0))
	if a.members[1].Done() {
		t.Error("slot 1 has ended")
	}
	if n := nodeRecord(t, server, "a"); n.Leaving != "the test" {
		t.Errorf("others may be moved to a member that ends: %+v", n)
	}
	if err := os.WriteFile(free, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := <-over
	over <- err
	if err.Error() != "the test" {
		t.Errorf("ended with %v", err)
	}
}

// A loop that ends while it writes as the elector lets the others write.
func TestTheEndOfALoopEndsItsWrite(t *testing.T) {
	server := storetest.NewServer()
	a, over := joinSlots(t, server, "a", [2][]string{})
	a.Stop("the test")
	err := <-over
	over <- err
	a.known.Begin(1)
	a.members[1].finish()
	if !a.known.Begin(0) {
		t.Error("slot 0 may not write")
	}
}

// A post_stop hook that has failed still counts after the end of the membership, whatever the guard knows.
func TestTheSuccessorOwesTheWaitForAFailedPostStop(t *testing.T) {
	server := storetest.NewServer()
	a, over := joinSlots(t, server, "a", [2][]string{{"false"}, {"true"}})
	first := &member{group: a.members[0].group}
	first.until(t, "a leads", func(v status.Daemon) bool { return v.Leads() && a.members[1].group.View().Leads() })
	for n, m := range a.members { // if these loops hang now, nothing says how the hooks will end
		if owed := m.Owed(); owed != a.budget.LeaseWait {
			t.Errorf("slot %d, abandoned: %s", n, owed)
		}
	}
	conn := server.Connect()
	defer conn.Close(t.Context())
	path := cluster.Paths{Root: "/g"}.Incarnation(a.Incarnation()) // so that nothing is released
	if _, err := conn.Do(t.Context(), cluster.Op{Kind: cluster.OpDelete, Path: path}); err != nil {
		t.Fatal(err)
	}
	err := <-over
	over <- err
	if owed := a.members[0].Owed(); owed != a.budget.LeaseWait {
		t.Errorf("slot 0: %s", owed)
	}
	if owed := a.members[1].Owed(); owed != 0 {
		t.Errorf("slot 1: %s", owed)
	}
}

// The elector must not blame a candidate for the time that its host needs to end the work of another slot.
func TestAHostThatIsFullIsQueued(t *testing.T) {
	conn := storetest.NewServer().Connect()
	defer conn.Close(context.Background())
	g := newGroup("a", cluster.Paths{Root: "/g"}.OfSlot(1))
	i := &Instance{ending: make(chan struct{}), self: cluster.Incarnation{Name: "a-0000000000000001-n_0000000001", ID: "a"}}
	i.slots.Record.SlotSize = cluster.SlotSize{Count: 2, PerNode: 1}
	i.known, i.room = electing.NewSlots(2, i.wake), &room{perNode: 1, wake: i.wake, live: make([]bool, 2)}
	i.budget = budgetFor(t, 0)
	for n := range 2 {
		i.members = append(i.members, newMember(t.Context(), i, n, MemberSetup{Group: g, Session: memorySession{conn}, Guard: &fakeGuard{}}))
	}
	defer i.Abandon()
	m := i.members[1]
	m.snap = cluster.Snapshot{At: 1, Self: i.self, Slot: "1", Elected: cluster.Stored[cluster.Elected]{Exists: true, Record: cluster.Elected{Term: 7, Incarnation: i.self.Name}}}
	i.room.admit(0)
	m.giveToMachine(m.snap)
	if !m.overLimit || !i.record().Queued {
		t.Errorf("over the limit: %t, the record: %+v", m.overLimit, i.record())
	}
	i.room.leave(0)
	m.lookAgain()
	if m.overLimit || i.record().Queued {
		t.Errorf("over the limit: %t, the record: %+v", m.overLimit, i.record())
	}
}
