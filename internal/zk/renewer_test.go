package zk

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/test/faultproxy"
	"zkelectd/internal/transition"
)

// opRecorder records the operations that a session asks for.
type opRecorder struct {
	mu      sync.Mutex
	ops     []int32
	packets []string
}

type recordedConn struct {
	net.Conn
	r *opRecorder
}

func (c recordedConn) Write(b []byte) (int, error) {
	_, op := requestHead(b)
	c.r.mu.Lock()
	c.r.ops = append(c.r.ops, op)
	c.r.packets = append(c.r.packets, string(b))
	c.r.mu.Unlock()
	return c.Conn.Write(b)
}

func (r *opRecorder) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	return recordedConn{conn, r}, err
}

// count returns how often the session has asked for an operation.
func (r *opRecorder) count(op int32) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.ops {
		if o == op {
			n++
		}
	}
	return n
}

// named reports whether the session has asked for an operation with this text in it.
func (r *opRecorder) named(op int32, text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n, o := range r.ops {
		if o == op && strings.Contains(r.packets[n], text) {
			return true
		}
	}
	return false
}

// led is a group that a session leads, as far as a RENEW checks that.
type led struct {
	*Group
	p    cluster.Paths
	held cluster.HeldVersions
}

// lead makes a session the leader of n new groups, without elections.
func lead(t testing.TB, s *Session, n int) []led {
	t.Helper()
	groups := make([]led, n)
	var all sync.WaitGroup
	for i := range groups {
		p := root(t, s)
		all.Go(func() {
			self, err := register(t, s, p, "n1")
			if err != nil {
				t.Error(err)
				return
			}
			current := create(p.Current(), true)
			if _, err := s.Do(t.Context(), create(p.Elected(), false), current); err != nil {
				t.Error(err)
				return
			}
			groups[i] = led{s.Group(p), p, cluster.HeldVersions{Self: self.Name}}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return groups
}

// renewAll posts a RENEW of every group, due in 100 ms, and returns the results.
func renewAll(groups []led) []transition.RenewDone {
	results := make([]transition.RenewDone, len(groups))
	var all sync.WaitGroup
	all.Add(len(groups))
	due := boottime.Now() + 100*time.Millisecond
	for i, g := range groups {
		g.Renew(transition.Renew{Ops: g.p.RenewTx(g.held), Due: due, Deadline: due + 10*time.Second}, func(r transition.RenewDone) {
			results[i] = r
			all.Done()
		})
	}
	all.Wait()
	return results
}

// The renewals of all groups are one transaction. If that is refused, only the group that is to blame gets the refusal.
func TestRenewalsAreMerged(t *testing.T) {
	var asked opRecorder
	s := open(t, Options{dialer: dialBy(asked.dial)})
	groups := lead(t, s, 50)
	before, began := asked.count(wireOpMulti), boottime.Now()
	for i, r := range renewAll(groups) {
		if r.Err != nil || r.Sent < began || r.Sent > boottime.Now() {
			t.Errorf("group %d: %+v", i, r)
		}
	}
	if n := asked.count(wireOpMulti) - before; n != 1 {
		t.Errorf("%d transactions", n)
	}
	for _, i := range []int{7, 30} { // both are replaced at once
		set := cluster.Op{Kind: cluster.OpSet, Path: groups[i].p.Elected(), Version: cluster.AnyVersion}
		if _, err := s.Do(t.Context(), set); err != nil {
			t.Fatal(err)
		}
	}
	before = asked.count(wireOpMulti)
	for i, r := range renewAll(groups) {
		if errors.Is(r.Err, cluster.ErrBadVersion) != (i == 7 || i == 30) || (r.Err == nil) == (i == 7 || i == 30) {
			t.Errorf("group %d: %v", i, r.Err)
		}
	}
	if n := asked.count(wireOpMulti) - before; n != 51 { // merged, then a check of each of the other 49, then the rest
		t.Errorf("%d transactions", n)
	}
}

// A request is good for one RENEW: a hung loop loses its lease. What was withdrawn or abandoned is not sent.
func TestRenewalsNeedANewRequestEachTime(t *testing.T) {
	var asked opRecorder
	s := open(t, Options{dialer: dialBy(asked.dial)})
	groups := lead(t, s, 3)
	renewAll(groups)
	before := asked.count(wireOpMulti)
	answered := func(transition.RenewDone) { t.Error("answered") }
	for _, g := range groups {
		now := boottime.Now()
		g.Renew(transition.Renew{Ops: g.p.RenewTx(g.held), Due: now + 200*time.Millisecond, Deadline: now + 10*time.Second}, answered)
	}
	groups[0].WithdrawRenewal()
	groups[1].Abandon()
	groups[2].Close()
	groups[1].Renew(transition.Renew{Ops: groups[1].p.RenewTx(groups[1].held), Due: 1, Deadline: boottime.Now() + time.Minute}, answered)
	result := make(chan transition.RenewDone, 1)
	due := boottime.Now() + 300*time.Millisecond
	groups[0].Renew(transition.Renew{Ops: groups[0].p.RenewTx(groups[0].held), Due: due, Deadline: due + time.Minute}, func(r transition.RenewDone) { result <- r })
	if r := <-result; r.Err != nil {
		t.Error(r.Err)
	}
	if n := asked.count(wireOpMulti) - before; n != 1 {
		t.Errorf("%d transactions", n)
	}
}

// The renewer gives the outcome of a request that cannot be sent, so that its group can post again.
func TestRenewalsWithoutAConnection(t *testing.T) {
	px := faultproxy.ForTest(t, shared.Addr())
	s := open(t, Options{Servers: []string{px.Addr()}})
	groups := lead(t, s, 2)
	px.SetMode(faultproxy.Refuse)
	eventually(t, "the loss of the connection", func() bool { return !s.Connected() })
	for _, r := range renewAll(groups) {
		if !errors.Is(r.Err, cluster.ErrNotSent) {
			t.Errorf("%v", r.Err)
		}
	}
	px.SetMode(faultproxy.Pass)
}

// If a server does not answer, the result is an error at the deadline of the lease. A later reply is discarded.
func TestRenewalsWithoutAReply(t *testing.T) {
	px := faultproxy.ForTest(t, shared.Addr())
	s := open(t, Options{Servers: []string{px.Addr()}, Timeout: 20 * time.Second})
	g := lead(t, s, 1)[0]
	px.SetMode(faultproxy.HalfOpen)
	results := make(chan transition.RenewDone, 2)
	now := boottime.Now()
	deadline := now + 200*time.Millisecond
	g.Renew(transition.Renew{Ops: g.p.RenewTx(g.held), Due: now, Deadline: deadline}, func(r transition.RenewDone) { results <- r })
	r := <-results
	if !errors.Is(r.Err, cluster.ErrUnknown) || r.Sent < now || boottime.Now() < deadline || !s.Connected() {
		t.Errorf("%+v, connected: %t", r, s.Connected())
	}
	px.SetMode(faultproxy.Pass)
	px.Reset(false) // the library returns
	eventually(t, "another connection", func() bool { return s.Connected() && s.Reconnects() > 0 })
	for _, r := range renewAll([]led{g}) {
		if r.Err != nil {
			t.Error(r.Err)
		}
	}
	if len(results) != 0 {
		t.Errorf("a second result: %+v", <-results)
	}
}
