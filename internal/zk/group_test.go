package zk

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/test/faultproxy"
)

// The library does not set the watches again after a reconnect: everything is read again, with new watches. A watch that a read sets
// before the library looks, after it has announced the new connection, may be set a second time, so each connection has its own group.
func TestReconnectSetsNoOldWatches(t *testing.T) {
	const setWatches = 101
	var asked opRecorder
	px := faultproxy.ForTest(t, shared.Addr())
	s, other := open(t, Options{Servers: []string{px.Addr()}, dialer: dialBy(asked.dial)}), open(t, Options{})
	var p cluster.Paths
	watchAll := func() {
		p = root(t, other)
		for _, path := range []string{p.Root, p.Nodes(), p.Leader(), p.Leader() + "/missing"} {
			if _, _, err := s.Get(t.Context(), path, true); err != nil && !errors.Is(err, cluster.ErrNoNode) {
				t.Fatal(err)
			}
		}
		if _, _, err := s.Children(t.Context(), p.Nodes(), true); err != nil {
			t.Fatal(err)
		}
	}
	watchAll()
	for n := range 3 {
		before := p.Root
		px.Reset(false)
		eventually(t, "a reconnect", func() bool { return s.Reconnects() > n && s.Connected() })
		eventually(t, "a hint at everything", func() bool { return s.TakeHints().All })
		watchAll()
		if asked.named(setWatches, before) || !asked.named(wireOpGetData, before) {
			t.Errorf("connection %d: the client sent %q", n, asked.packets)
		}
	}
	set := cluster.Op{Kind: cluster.OpSet, Path: p.Leader(), Version: cluster.AnyVersion, Data: []byte("x")}
	if _, err := other.Do(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a hint at the change", func() bool { return s.TakeHints().Has(p.Leader()) })
}

// A reconnect hints everything to every handle that is open. The contract of package storetest has the other hints.
func TestReconnectHintsEachHandle(t *testing.T) {
	px := faultproxy.ForTest(t, shared.Addr())
	s := open(t, Options{Servers: []string{px.Addr()}})
	a, b := cluster.Paths{Root: "/a"}, cluster.Paths{Root: "/b"}
	ga, gb, again := s.Group(a), s.Group(b), s.Group(a)
	again.Close()
	px.Reset(false)
	for _, wake := range []<-chan struct{}{ga.Wake(), gb.Wake(), s.Wake()} {
		<-wake
	}
	if !ga.TakeHints().All || !gb.TakeHints().All || !s.TakeHints().All || again.TakeHints().All {
		t.Error("a reconnect does not hint at everything to every open handle")
	}
	ga.Close()
	gb.Close()
	if len(s.groups) != 0 {
		t.Error("a closed handle stays")
	}
}

// Nothing of a handle is sent after it was abandoned, also not what is urgent, or at the end of the session.
func TestAbandonedHandle(t *testing.T) {
	s := open(t, Options{})
	p := root(t, s)
	g := s.Group(p)
	g.CloseWith(create(p.Root+"/final", false))
	g.Abandon()
	if _, err := g.Do(WithPriority(t.Context(), PriorityUrgent), create(p.Root+"/x", false)); !errors.Is(err, ErrAbandoned) {
		t.Errorf("an urgent write: %v", err)
	}
	g.Close()
	g.CloseWith(create(p.Root+"/final", false))
	if len(s.finals()) != 0 {
		t.Error("a closed handle has a final transaction")
	}
}

// fill occupies all slots of the queue until the test ends.
func fill(t *testing.T, s *Session) {
	t.Helper()
	for range maxInLibrary {
		leave, err := s.queue.enter(t.Context(), s.own)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(leave)
	}
}

// A request that still waits for its turn is taken back when its caller or its handle gives up.
func TestQueuedRequestsAreTakenBack(t *testing.T) {
	s := open(t, Options{})
	p := root(t, s)
	fill(t, s)
	g := s.Group(p)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, c := range []struct {
		ctx  context.Context
		g    *Group
		want []error
	}{
		{ctx, s.own, []error{cluster.ErrNotSent, context.Canceled}},
		{t.Context(), g, []error{cluster.ErrNotSent, ErrAbandoned}},
	} {
		all.Go(func() {
			_, err := c.g.Do(c.ctx, create(p.Root+"/x", false))
			for _, want := range c.want {
				if !errors.Is(err, want) {
					t.Errorf("%v, want %v", err, want)
				}
			}
		})
	}
	eventually(t, "both are queued", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.writes) == 2
	})
	cancel()
	g.Abandon()
	all.Wait()
	if len(s.writes) != 0 || len(s.queue[PriorityNormal]) != maxInLibrary {
		t.Errorf("left over: %d writes, %d in the queue", len(s.writes), len(s.queue[PriorityNormal]))
	}
	if _, _, err := s.Get(WithPriority(t.Context(), PriorityUrgent), p.Root+"/x", false); !errors.Is(err, cluster.ErrNoNode) {
		t.Errorf("it was sent: %v", err)
	}
}

// Requests of groups without a leader wait for no others, and those for leases never wait.
func TestOtherPrioritiesDoNotWait(t *testing.T) {
	s := open(t, Options{})
	fill(t, s)
	for p, waits := range map[Priority]bool{PriorityNormal: true, PriorityRecovery: false, PriorityUrgent: false} {
		ctx, cancel := context.WithTimeout(WithPriority(t.Context(), p), 100*time.Millisecond)
		leave, err := s.queue.enter(ctx, s.own)
		cancel()
		if (err != nil) != waits {
			t.Errorf("priority %d: %v", p, err)
		}
		if err == nil {
			leave()
		}
	}
}

// Close sends the final transaction of each group: a refusal of one does not stop the others.
func TestCloseSendsEachFinalTransaction(t *testing.T) {
	s, reader := open(t, Options{Timeout: time.Minute}), open(t, Options{})
	var groups []cluster.Paths
	for i := range 2*maxFinalsInFlight + 3 {
		p := root(t, s)
		op := cluster.Op{Kind: cluster.OpSet, Path: p.Leader(), Data: []byte("left")}
		if i%2 == 1 {
			op.Version = 7 // refused
		}
		s.Group(p).CloseWith(op)
		groups = append(groups, p)
	}
	closeSession(t, s)
	for i, p := range groups {
		if data, _, err := reader.Get(t.Context(), p.Leader(), false); err != nil || (string(data) == "left") != (i%2 == 0) {
			t.Errorf("group %d: %q, %v", i, data, err)
		}
	}
}

// A server sends a watch event before any newer data. The hint must be there when the caller gets that data: otherwise a snapshot
// could mix the states before and after a change (S1).
func TestHintComesBeforeNewerData(t *testing.T) {
	const changed, connected = 3, 3
	path := "/g/leader/elected"
	event := binary.BigEndian.AppendUint32(nil, changed)
	event = binary.BigEndian.AppendUint32(event, connected)
	event = append(binary.BigEndian.AppendUint32(event, uint32(len(path))), path...)
	data := append([]byte{0, 0, 0, 1, 'x'}, make([]byte, 68)...)
	server := newScriptedServer(t, replies(func(xid, op int32) []byte {
		if op == 4 { // getData
			return append(encodePacket(-1, 0, event...), encodePacket(xid, 0, data...)...)
		}
		return encodePacket(xid, 0)
	}))
	s := open(t, Options{Servers: []string{server.addr}, Timeout: 2 * time.Second})
	g, neighbor := s.Group(cluster.Paths{Root: "/g"}), s.Group(cluster.Paths{Root: "/h"})
	g.TakeHints()
	for range 100 {
		if _, _, err := neighbor.Get(t.Context(), "/h/x", false); err != nil {
			t.Fatal(err)
		}
		if !g.TakeHints().Has(path) {
			t.Fatal("newer data came before the hint")
		}
	}
}

// LEAVE relies on Sync: while the library may still send a write to the root, of whatever handle, a read proves nothing. Writes to
// other roots do not matter. A server that lags behind must catch up as well, also when no write is on its way.
func TestSyncWaitsForEarlierWrites(t *testing.T) {
	const wireOpSync = 9
	var asked opRecorder
	s := open(t, Options{dialer: dialBy(asked.dial)})
	p := root(t, s)
	old, next, neighbor := s.Group(p), s.Group(p), s.Group(root(t, s))
	end, err := s.begin(request{group: old, write: true})
	if err != nil {
		t.Fatal(err)
	}
	old.Close()
	if err := neighbor.Sync(t.Context()); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := next.Sync(ctx); !errors.Is(err, context.DeadlineExceeded) || asked.named(wireOpSync, p.Root) {
		t.Errorf("it does not wait: %v", err)
	}
	end()
	if err := next.Sync(t.Context()); err != nil || !asked.named(wireOpSync, p.Root) {
		t.Errorf("the server does not catch up: %v", err)
	}
}

// A handle is synced once after a write of unknown outcome, and again if that fails.
func TestSettle(t *testing.T) {
	s := open(t, Options{})
	g := s.Group(root(t, s))
	g.swapUnsettled(true)
	end, err := s.begin(request{group: g, write: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		if err := g.Settle(ctx); err == nil {
			t.Error("no error without a sync")
		}
	}
	end()
	if err := g.Settle(t.Context()); err != nil || g.swapUnsettled(false) {
		t.Errorf("it is not settled: %v", err)
	}
}
