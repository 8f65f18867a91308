package group

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
	"zkelectd/internal/store/storetest"
	"zkelectd/internal/transition"
	"zkelectd/internal/work/worker"
)

// generous makes members wait for their successors.
const generous = 2 * time.Second

// The leader is the elector: it elects its successor before it ends, and while its session lives.
func TestALeavingElectorElectsItsSuccessor(t *testing.T) {
	server := storetest.NewServer()
	a := joinWithStop(t, server, "a", generous)
	a.until(t, "a leads", status.Daemon.Leads)
	b := join(t, server, "b")
	a.until(t, "a sees b", func(v status.Daemon) bool { return v.Sites["dc1"].Eligible == 2 })
	a.Stop("maintenance")
	b.until(t, "b leads, although the session of a lives", status.Daemon.Leads)
	if reason := a.reason(t); reason != "maintenance" {
		t.Errorf("a ended with %q", reason)
	}
	began := time.Now()
	if a.instance.awaitSuccessors(); time.Since(began) < successorTime {
		t.Error("its registration ends while b takes over")
	}
	if n := nodeRecord(t, server, "b"); n.Leaving != "" {
		t.Errorf("b's record: %+v", n)
	}
}

// A snapshot that was read before the elector's decision does not take that back.
func TestAnOldSnapshotDoesNotUndoTheHandover(t *testing.T) {
	a := join(t, storetest.NewServer(), "a")
	a.until(t, "a leads", status.Daemon.Leads)
	handedOver := make(chan bool, 1)
	a.background.runInLoop(func() {
		before := a.read
		next := before.Elected.Record
		next.Term, next.Node, next.Incarnation = next.Term+1, "b", "b-0_n_1"
		a.electedOther(next)
		a.observe(before)
		handedOver <- a.handedOver.Load()
	})
	if !<-handedOver {
		t.Error("it forgets its successor")
	}
}

// deafSession reads nothing from some time on, and writes no record of its node. It keeps the fence of the last
// RELEASE.
type deafSession struct {
	memorySession
	deaf     *atomic.Bool
	released *atomic.Value
}

func (s deafSession) Do(ctx context.Context, ops ...cluster.Op) ([]cluster.Result, error) {
	p := cluster.Paths{Root: "/g"}
	for _, op := range ops {
		switch {
		case op.Kind == cluster.OpSet && op.Path == p.Leader():
			s.released.Store(cluster.ReadFence(p.Leader(), op.Data, cluster.Stat{Version: 1}, true).Record.Reason)
		case op.Kind == cluster.OpSet && op.Path == p.Node("a") && s.deaf.Load():
			<-ctx.Done()
			return nil, cluster.ErrUnknown
		}
	}
	return s.memorySession.Do(ctx, ops...)
}

func (s deafSession) Get(ctx context.Context, path string, watch bool) ([]byte, cluster.Stat, error) {
	if s.deaf.Load() {
		<-ctx.Done()
		return nil, cluster.Stat{}, ctx.Err()
	}
	return s.memorySession.Get(ctx, path, watch)
}

// A leaver that is the elector waits neither for its own announcement, nor for a read: neither of that, nor of its
// decision.
func TestALeavingElectorWaitsForNothing(t *testing.T) {
	server := storetest.NewServer()
	deaf, released := new(atomic.Bool), new(atomic.Value)
	a := joinWithSession(t, server, "a", generous, func(s memorySession) Session { return deafSession{s, deaf, released} })
	a.until(t, "a leads", status.Daemon.Leads)
	b := join(t, server, "b")
	a.until(t, "a sees b", func(v status.Daemon) bool { return v.Sites["dc1"].Eligible == 2 })
	deaf.Store(true)
	a.Stop("maintenance")
	b.until(t, "b leads", status.Daemon.Leads)
	if e := b.group.View(); e.Reason != "a is no longer eligible: it is leaving: maintenance" {
		t.Errorf("b is elected because %q", e.Reason)
	}
	a.reason(t)
	if reason, _ := released.Load().(string); !strings.HasPrefix(reason, "replaced by b in term ") { // and not: RENEW was refused
		t.Errorf("a has released because %q", reason)
	}
}

// Another member is the elector.
func TestALeavingLeaderIsReplaced(t *testing.T) {
	server := storetest.NewServer()
	b := join(t, server, "b")
	b.until(t, "b leads", status.Daemon.Leads)
	a := joinWithStop(t, server, "a", generous)
	next := a.group.opt.Settings
	next.Node.Priority = 7
	a.Apply(next, false)
	a.until(t, "a leads", status.Daemon.Leads)
	a.Stop("maintenance")
	b.until(t, "b leads, although the session of a lives", status.Daemon.Leads)
	a.reason(t)
	if e := b.group.View(); e.Reason != "a is no longer eligible: it is leaving: maintenance" {
		t.Errorf("b is elected because %q", e.Reason)
	}
}

// Nobody else is there: the elector says so, and the leader ends as if nothing had been announced.
func TestALeaverThatIsAlone(t *testing.T) {
	server := storetest.NewServer()
	a := joinWithStop(t, server, "a", generous)
	a.until(t, "a leads", status.Daemon.Leads)
	a.Stop("maintenance")
	a.reason(t)
	if a.handedOver.Load() {
		t.Error("it waits for a successor that does not exist")
	}
	if f := fence(t, server); f.State != cluster.FenceReleased || f.Reason != "maintenance" || !f.Requested {
		t.Errorf("the fence: %+v", f)
	}
}

// All members of an instance leave with one announcement.
func TestTheSlotsOfALeaverMove(t *testing.T) {
	server := storetest.NewServer()
	p := cluster.Paths{Root: "/g"}
	init := server.Connect()
	defer init.Close(t.Context())
	for n := range 2 {
		if err := store.Init(t.Context(), init, p.OfSlot(n), "the test"); err != nil {
			t.Fatal(err)
		}
	}
	a, over := joinSlotsWithStop(t, server, "a", generous, [2][]string{})
	leads := func(i *Instance) func(status.Daemon) bool {
		return func(status.Daemon) bool {
			return i.members[0].group.View().Leads() && i.members[1].group.View().Leads()
		}
	}
	first := &member{group: a.members[0].group}
	first.until(t, "a leads both slots", leads(a))
	b, _ := joinSlots(t, server, "b", [2][]string{})
	for _, m := range a.members { // a slot that knows nobody else ends without a successor, and leaves the election to it
		first.until(t, "a sees b", func(status.Daemon) bool { return m.group.View().Sites["dc1"].Eligible == 2 })
	}
	a.Stop("maintenance")
	first.until(t, "b leads both slots, although the session of a lives", leads(b))
	err := <-over
	over <- err
	_, stat, err := init.Get(t.Context(), p.Node("a"), false)
	if err != nil || stat.Version > 1 { // none if a has ended before that
		t.Errorf("the record of a has version %d, %v: want one write at most since it was registered", stat.Version, err)
	}
}

// A leaver that is the elector announces its end if that takes long.
func TestALeavingElectorIsAnnounced(t *testing.T) {
	server, letGo := storetest.NewServer(), make(chan struct{})
	a := joinWithSession(t, server, "a", generous, func(s memorySession) Session { return holding{s, letGo} })
	a.until(t, "a leads", status.Daemon.Leads)
	join(t, server, "b")
	a.until(t, "a sees b", func(v status.Daemon) bool { return v.Sites["dc1"].Eligible == 2 })
	a.Stop("maintenance")
	a.until(t, "the announcement", func(status.Daemon) bool { return nodeRecord(t, server, "a").Leaving == "maintenance" })
	close(letGo)
	a.reason(t)
}

// holding delays RELEASE until it is let go.
type holding struct {
	memorySession
	letGo chan struct{}
}

func (s holding) Do(ctx context.Context, ops ...cluster.Op) ([]cluster.Result, error) {
	current := (cluster.Paths{Root: "/g"}).Current()
	if slices.ContainsFunc(ops, func(op cluster.Op) bool { return op.Kind == cluster.OpDelete && op.Path == current }) {
		select {
		case <-s.letGo:
		case <-ctx.Done():
		}
	}
	return s.memorySession.Do(ctx, ops...)
}

// The next member of a group, on another session, learns when the work of the one before ended, and hands that on.
func TestTheNextMemberKnowsTheLastWork(t *testing.T) {
	t.Parallel()
	server := storetest.NewServer()
	first := join(t, server, "a")
	first.Stop("another session")
	_ = first.reason(t)
	first.conn.Close(t.Context())
	ended := transition.LastWork{Term: 7, Ended: time.Hour}
	first.group.lastWork = ended

	conn := server.Connect()
	defer conn.Close(context.Background())
	instance, err := Register(t.Context(), Registration{
		Settings: first.group.opt.Settings, Budget: budgetFor(t, 0),
		Members: []MemberSetup{{Group: first.group, Session: memorySession{conn}, Guard: &fakeGuard{}, Options: memberOptions(worker.Spec{})}},
	})
	if err != nil {
		t.Fatal(err)
	}
	next := &member{Member: instance.Members()[0], group: first.group, conn: conn, over: make(chan error, 1)}
	if got := next.machine.LastWork(); got != ended {
		t.Errorf("it knows of %+v, want %+v", got, ended)
	}
	next.group.lastWork = transition.LastWork{}
	go func() { next.over <- next.Run() }()
	next.Stop("the test is over")
	_ = next.reason(t)
	if got := next.group.lastWork; got != ended {
		t.Errorf("it hands on %+v, want %+v", got, ended)
	}
}
