package group

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/clustertest"
	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/status"
)

// generous makes members wait for their successors.
const generous = 2 * time.Second

// fence reads the fence from another session.
func fence(t *testing.T, server *clustertest.Server, p cluster.Paths) cluster.Fence {
	t.Helper()
	s := server.Connect()
	defer s.Close(t.Context())
	data, stat, err := s.Get(t.Context(), p.Leader(), false)
	if err != nil {
		t.Fatal(err)
	}
	return cluster.ReadFence(p.Leader(), data, stat, true).Record
}

// The leader is the elector: it elects its successor before it ends, and while its session lives.
func TestALeavingElectorElectsItsSuccessor(t *testing.T) {
	server := clustertest.NewServer()
	a := joinWithStop(t, server, "a", generous)
	a.until(t, "a leads", status.Daemon.Leads)
	b := join(t, server, "b")
	a.until(t, "a sees b", func(v status.Daemon) bool { return v.Sites["dc1"].Eligible == 2 })
	a.Stop("maintenance")
	b.until(t, "b leads, although the session of a lives", status.Daemon.Leads)
	if reason := a.reason(t); reason != "maintenance" {
		t.Errorf("a ended with %q", reason)
	}
	if n := record(t, server, "a"); n.Leaving != "maintenance" {
		t.Errorf("a's record: %+v", n)
	}
	if n := record(t, server, "b"); n.Leaving != "" {
		t.Errorf("b's record: %+v", n)
	}
}

// Another member is the elector.
func TestALeavingLeaderIsReplaced(t *testing.T) {
	server := clustertest.NewServer()
	b := join(t, server, "b")
	b.until(t, "b leads", status.Daemon.Leads)
	a := joinWithStop(t, server, "a", generous)
	next := a.group.opt.Settings
	next.Node.Priority = 7
	if !a.Apply(next, false) {
		t.Fatal("the loop has ended")
	}
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
	server := clustertest.NewServer()
	a := joinWithStop(t, server, "a", generous)
	a.until(t, "a leads", status.Daemon.Leads)
	a.Stop("maintenance")
	a.reason(t)
	if f := fence(t, server, cluster.Paths{Root: "/g"}); f.State != cluster.FenceReleased || f.Reason != "maintenance" || !f.Requested {
		t.Errorf("the fence: %+v", f)
	}
}

// All members of an instance leave with one announcement.
func TestTheSlotsOfALeaverMove(t *testing.T) {
	server := clustertest.NewServer()
	p := cluster.Paths{Root: "/g"}
	init := server.Connect()
	defer init.Close(t.Context())
	for n := range 2 {
		if err := zkstore.Init(t.Context(), init, p.OfSlot(n), "the test"); err != nil {
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
	first.until(t, "a sees b", func(status.Daemon) bool { return a.members[0].group.View().Sites["dc1"].Eligible == 2 })
	a.Stop("maintenance")
	first.until(t, "b leads both slots, although the session of a lives", leads(b))
	err := <-over
	over <- err
	_, stat, err := init.Get(t.Context(), p.Node("a"), false)
	if err != nil || stat.Version != 1 {
		t.Errorf("the record of a has version %d, %v: want one write since it was registered", stat.Version, err)
	}
}

// The record is read only if another client has changed it.
func TestTheRecordIsWrittenOverAnotherVersion(t *testing.T) {
	server := clustertest.NewServer()
	conn, other, p := server.Connect(), server.Connect(), cluster.Paths{Root: "/g"}
	defer conn.Close(context.Background())
	defer other.Close(context.Background())
	if err := zkstore.EnsureTree(t.Context(), conn, p); err != nil {
		t.Fatal(err)
	}
	self, err := zkstore.Register(t.Context(), conn, p, cluster.Node{ID: "a", Since: time.Unix(7, 0)})
	if err != nil {
		t.Fatal(err)
	}
	w := &publication{
		session: memorySession{conn}, log: slog.New(slog.DiscardHandler), paths: p, self: self, known: true, since: time.Unix(7, 0),
	}
	write := func(reason string) {
		t.Helper()
		if err := w.write(t.Context(), cluster.Node{ID: "a", Leaving: reason}); err != nil {
			t.Fatal(err)
		}
		if n := record(t, server, "a"); n.Leaving != reason || n.Since.Unix() != 7 {
			t.Errorf("%+v", n)
		}
	}
	write("first")
	do := func(op cluster.Op) {
		t.Helper()
		op.Version = cluster.AnyVersion
		if _, err := other.Do(t.Context(), op); err != nil {
			t.Fatal(err)
		}
	}
	do(cluster.Op{Kind: cluster.OpSet, Path: p.Node("a"), Data: []byte(`{"v":1,"since":"1970-01-01T00:00:07Z"}`)})
	write("second")
	write("third")
	do(cluster.Op{Kind: cluster.OpDelete, Path: p.Incarnation(self.Name)})
	if err := w.write(t.Context(), cluster.Node{ID: "a"}); !errors.Is(err, cluster.ErrNoNode) {
		t.Errorf("without its incarnation: %v", err)
	}
}
