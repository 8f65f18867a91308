package group

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/guard"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/policy"
	"zkelectd/internal/store"
	"zkelectd/internal/store/storetest"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/test/testhelper"
	"zkelectd/internal/transition"
	"zkelectd/internal/work/worker"
	"zkelectd/internal/zk"
)

// memorySession is a session on the model of ZooKeeper.
type memorySession struct{ *storetest.Session }

const sessionTimeout = 6 * time.Second

// Renew sends a RENEW when it is due.
func (s memorySession) Renew(r transition.Renew, done func(transition.RenewDone)) {
	go func() {
		due := time.NewTimer(r.Due - boottime.Now())
		defer due.Stop()
		select {
		case <-due.C:
			sent := boottime.Now()
			_, err := s.Do(context.Background(), r.Ops...)
			done(transition.RenewDone{Term: r.Term, Held: r.Held, Sent: sent, Err: err})
		case <-s.Done():
		}
	}()
}

func (memorySession) WithdrawRenewal()        {} // the machine ignores the result
func (memorySession) Timeout() time.Duration  { return sessionTimeout }
func (memorySession) Connected() bool         { return true }
func (memorySession) Reconnects() int         { return 0 }
func (memorySession) Fail(error)              {}
func (memorySession) LeaseZnode() string      { return "" }
func (memorySession) Tags() []string          { return nil }
func (memorySession) CloseWith(...cluster.Op) {}
func (memorySession) AuditACLs(context.Context, cluster.Paths) (zk.ACLAudit, error) {
	return zk.ACLAudit{}, nil
}
func (memorySession) Exposure(context.Context, string) (read, change bool, err error) {
	return false, false, nil
}

// fakeGuard records the leases, and what it is asked to start. It runs nothing.
type fakeGuard struct {
	mu        sync.Mutex
	leases    []time.Duration
	release   json.RawMessage // as it was set last
	confirmed json.RawMessage // as the guard has it
	gone      error
}

func (g *fakeGuard) SetLease(deadline time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leases = append(g.leases, deadline)
}

func (g *fakeGuard) last() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.leases) == 0 {
		return 0
	}
	return g.leases[len(g.leases)-1]
}

func (g *fakeGuard) SetRelease(tx json.RawMessage) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.release = tx
}

// Confirm fails if the guard is gone.
func (g *fakeGuard) Confirm(context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.confirmed = g.release
	return g.gone
}

func (*fakeGuard) Unkillable() string                       { return "" }
func (*fakeGuard) SetPendingHooks(...guard.Spec) error      { return nil }
func (*fakeGuard) Owners() (guardian, daemon guard.Process) { return guardian, daemon }
func (*fakeGuard) Start(guard.Spec) (*guard.Work, error) {
	return nil, errors.New("it runs nothing")
}

type healthy struct{}

func (healthy) UnhealthyReason() string                  { return "" }
func (healthy) ObserveRead(time.Duration, time.Duration) {}
func (healthy) NoteResponse(time.Duration)               {}
func (healthy) RespondedAt() time.Duration               { return 0 }
func (healthy) Fill(*cluster.Node)                       {}

// member is a member, with a running loop, of a group in memory.
type member struct {
	*Member
	group *Group
	guard *fakeGuard
	conn  *storetest.Session
	over  chan error
}

// newGroup returns a group.
func newGroup(id string, p cluster.Paths) *Group {
	return New(Options{
		Name: "g", Paths: p, Identity: Identify(os.Getpid()), Health: healthy{}, Counters: NewCounters(nil), Feed: status.NewFeed(), Log: slog.New(slog.DiscardHandler),
		Containment: func() guard.Containment { return "" }, GuardErr: func() error { return nil },
		Settings: Settings{Node: cluster.Node{ID: id, Site: "dc1"}, Rules: cluster.Rules{Type: "priority"}},
		Rank: func(context.Context, []string, policy.Input) policy.Answer {
			return policy.Answer{Err: "there is no program"}
		},
		Loads: func() map[string]cluster.Load { return nil }, OnChange: func([]byte) {}, OnView: func(status.Daemon) {}, OnElector: func(*cluster.Snapshot) {},
		Placement: noPlacement{}, Device: func() *status.WatchdogDevice { return nil }, Standby: func() (*cluster.Standby, string) { return nil, "" },
	})
}

func memberOptions(work worker.Spec) InstanceOptions {
	return InstanceOptions{
		Elector: elector.Options{Exclusion: time.Minute, ExclusionMax: time.Hour}, TakeoverTimeout: 30 * time.Second, StrikeResetAfter: time.Minute, Work: work,
	}
}

// join runs a member that does not wait for its successor when it leaves.
func join(t *testing.T, server *storetest.Server, id string) *member {
	t.Helper()
	return joinWithStop(t, server, id, 0)
}

// joinWithStop is join with a stop timeout. If that is not 0, the member waits for its successor, however long that takes.
func joinWithStop(t *testing.T, server *storetest.Server, id string, stop time.Duration) *member {
	t.Helper()
	return joinWithSession(t, server, id, stop, func(s memorySession) Session { return s })
}

// joinWithSession is joinWithStop with a session that is made from the one in memory.
func joinWithSession(t *testing.T, server *storetest.Server, id string, stop time.Duration, session func(memorySession) Session) *member {
	t.Helper()
	return joinWith(t, server, id, stop, session, func(*Group, *Settings, *InstanceOptions) {})
}

// joinWith is joinWithSession with other settings and options.
func joinWith(
	t *testing.T, server *storetest.Server, id string, stop time.Duration, session func(memorySession) Session,
	change func(*Group, *Settings, *InstanceOptions),
) *member {
	t.Helper()
	conn := server.Connect()
	paths := cluster.Paths{Root: "/g"}
	var used *cluster.InUseError
	if err := store.Init(t.Context(), conn, paths, "the test"); err != nil && !errors.As(err, &used) {
		t.Fatal(err)
	}
	m := &member{guard: &fakeGuard{}, conn: conn, over: make(chan error, 1)}
	m.group = newGroup(id, paths)
	settings, options := m.group.opt.Settings, memberOptions(worker.Spec{})
	change(m.group, &settings, &options)
	instance, err := Register(t.Context(), Registration{
		Settings: settings, Budget: budgetFor(t, stop),
		Members: []MemberSetup{{Group: m.group, Session: session(memorySession{conn}), Guard: m.guard, Options: options}},
	})
	if err != nil {
		t.Fatal(err)
	}
	m.Member = instance.Members()[0]
	go func() { m.over <- m.Run() }()
	t.Cleanup(func() {
		m.Stop("the test is over")
		conn.Close(context.Background())
		<-m.over
	})
	return m
}

func budgetFor(t *testing.T, stop time.Duration) cluster.Budget {
	t.Helper()
	budget, err := cluster.NewBudget(sessionTimeout, 0, stop)
	if err != nil {
		t.Fatal(err)
	}
	budget.Handover = 0
	if stop > 0 {
		budget.Handover = time.Hour // the machine may be slow
	}
	return budget
}

func (m *member) until(t *testing.T, what string, ok func(status.Daemon) bool) {
	t.Helper()
	testhelper.Eventually(t, 30*time.Second, what, func() bool { return ok(m.group.View()) },
		func() string { return fmt.Sprintf("the view is %+v", m.group.View()) })
}

// reason waits until the loop ends, and returns the reason.
func (m *member) reason(t *testing.T) string {
	t.Helper()
	select {
	case err := <-m.over:
		m.over <- err
		return err.Error()
	case <-time.After(30 * time.Second):
		t.Fatal("the loop does not end")
		return ""
	}
}

// readRecord reads a record from another session.
func readRecord[T any](t *testing.T, server *storetest.Server, path string, read func(string, []byte, cluster.Stat, bool) cluster.Stored[T]) T {
	t.Helper()
	s := server.Connect()
	defer s.Close(t.Context())
	data, stat, err := s.Get(t.Context(), path, false)
	stored := read(path, data, stat, err == nil)
	if err != nil || stored.Err != nil {
		t.Fatal(err, stored.Err)
	}
	return stored.Record
}

func nodeRecord(t *testing.T, server *storetest.Server, id string) cluster.Node {
	t.Helper()
	return readRecord(t, server, cluster.Paths{Root: "/g"}.Node(id), cluster.ReadStored[cluster.Node])
}

func fence(t *testing.T, server *storetest.Server) cluster.Fence {
	t.Helper()
	return readRecord(t, server, cluster.Paths{Root: "/g"}.Leader(), cluster.ReadFence)
}

// Two members on the model of ZooKeeper: one leads, and when it stops the other does.
func TestOneLeadsAndHandsOver(t *testing.T) {
	server := storetest.NewServer()
	a := join(t, server, "a")
	a.until(t, "a leads", status.Daemon.Leads)
	b := join(t, server, "b")
	b.until(t, "b sees that a is elected", func(v status.Daemon) bool { return v.Elected == "a" })
	if left := a.guard.last() - boottime.Now(); left <= 0 || left > cluster.Lease(sessionTimeout) {
		t.Errorf("a's lease lasts %s more", left)
	}
	if b.guard.last() != 0 || b.group.View().Leads() {
		t.Error("b has a lease, too")
	}
	a.Stop("maintenance")
	if reason := a.reason(t); reason != "maintenance" || a.guard.last() != 0 {
		t.Errorf("a ended with %q and the lease %s", reason, a.guard.last())
	}
	a.conn.Close(t.Context())
	b.until(t, "b leads", status.Daemon.Leads)
}

// Apply changes the settings in the loop before it returns, and the node's record soon after.
func TestApplyPublishesTheRecord(t *testing.T) {
	server := storetest.NewServer()
	a := join(t, server, "a")
	a.until(t, "a leads", status.Daemon.Leads)
	next := a.group.opt.Settings
	next.Node.Site, next.Node.Priority, next.Node.Reloads = "dc2", 7, 1
	a.Apply(next, true)
	a.until(t, "the site is shown", func(v status.Daemon) bool { return v.Site == "dc2" })
	a.until(t, "the record is published", func(status.Daemon) bool { return nodeRecord(t, server, "a").Reloads == 1 })
	if n := nodeRecord(t, server, "a"); n.Site != "dc2" || n.Priority != 7 || n.PolicyDigest != next.Rules.Digest() {
		t.Errorf("the record is %+v", n)
	}
	a.Stop("stop")
	a.reason(t)
	a.conn.Close(t.Context())
	next.Node.Reloads = 2
	a.Apply(next, false) // returns, as the loop has ended
	again := server.Connect()
	defer again.Close(t.Context())
	if _, err := Register(t.Context(), Registration{
		Members: []MemberSetup{{Group: a.group, Session: memorySession{again}, Guard: a.guard}}, Settings: next, Budget: a.budget,
	}); err != nil {
		t.Fatal(err)
	}
	if n := nodeRecord(t, server, "a"); n.Reloads != 2 {
		t.Errorf("the next member registers with %+v", n)
	}
}

// A cut reaches the guard at once, before the loop handles it, and ends the leadership and the membership.
func TestCutEndsTheMembership(t *testing.T) {
	a := join(t, storetest.NewServer(), "a")
	a.until(t, "a leads", status.Daemon.Leads)
	cut := boottime.Now() + 50*time.Millisecond
	a.CutLease(cut, "a server granted less")
	if last := a.guard.last(); last > cut {
		t.Errorf("the lease lasts until %s, it was cut to %s", last, cut)
	}
	if reason := a.reason(t); !strings.Contains(reason, "a server granted less") {
		t.Errorf("ended with %q", reason)
	}
}

// The membership ends with its session.
func TestExpiryEndsTheMembership(t *testing.T) {
	server := storetest.NewServer()
	a := join(t, server, "a")
	a.until(t, "a leads", status.Daemon.Leads)
	server.Expire(a.conn.SessionID())
	if reason := a.reason(t); !strings.Contains(reason, "expired") || a.guard.last() != 0 {
		t.Errorf("ended with %q and the lease %s", reason, a.guard.last())
	}
	if v := a.group.View(); v.Leads() || v.Session || v.Loop || v.Holder != nil {
		t.Errorf("afterwards it shows %+v", v)
	}
}

// The view does not show a decision that cannot be read.
func TestUnreadableDecisionIsNotShown(t *testing.T) {
	server := storetest.NewServer()
	a := join(t, server, "a")
	a.until(t, "a leads", status.Daemon.Leads)
	a.Stop("stop")
	a.reason(t) // nothing but this goroutine uses the member from here on
	a.snap.Elected = cluster.Stored[cluster.Elected]{Exists: true, Record: cluster.Elected{Node: "b", Site: "dc2", Term: 7}, Err: cluster.ErrInvalid}
	if v := a.Member.View(); v.Elected != "" || v.ElectedTerm != 0 || v.ElectedSite != "" {
		t.Errorf("it shows %+v", v)
	}
	a.snap.Elected.Err = nil
	if v := a.Member.View(); v.Elected != "b" || v.ElectedTerm != 7 || v.ElectedSite != "dc2" {
		t.Errorf("it shows %+v", v)
	}
}

// noPlacement knows nothing of other groups.
type noPlacement struct{}

func (noPlacement) Others([]string) elector.Placement { return elector.Placement{} }
func (noPlacement) Elected(string)                    {}
func (noPlacement) SetPolicy(cluster.Rules)           {}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A loop that has done something without publishing its view is asked to: only the view shows others that it is alive.
func TestBeatAsksWhoHasNotUpdatedItsView(t *testing.T) {
	const session = 6 * time.Second
	for _, c := range []struct {
		published time.Duration // so long ago
		asked     bool
	}{{0, false}, {session, true}} {
		g := &Group{notices: notices{c: make(chan struct{}, 1)}}
		g.view.Store(&status.Daemon{UpdatedAt: boottime.Now() - c.published})
		m := &Member{group: g}
		i := &Instance{members: []*Member{m}, budget: cluster.Budget{Session: session}}
		if i.Beat(); g.notices.take()&beatRequested != 0 != c.asked {
			t.Errorf("published %s ago: %t", c.published, !c.asked)
		}
	}
}

func TestCutLeaseIsNeverExtended(t *testing.T) {
	var sent []time.Duration
	l := &leaseLimit{send: func(d time.Duration) { sent = append(sent, d) }}
	l.set(100)
	l.set(200)
	l.shorten(150) // the current lease is shortened at once
	l.set(300)     // computed before the cut, or from a reply that came late
	l.shorten(250)
	l.shorten(140)
	l.set(0)
	l.shorten(130) // all work is dead: another deadline would allow work again
	l.set(120)
	if want := []time.Duration{100, 200, 150, 150, 140, 0, 120}; !slices.Equal(sent, want) {
		t.Errorf("sent %v, want %v", sent, want)
	}
}

// unaudited is a session that cannot read ACLs.
type unaudited struct{ memorySession }

func (unaudited) AuditACLs(context.Context, cluster.Paths) (zk.ACLAudit, error) {
	return zk.ACLAudit{}, errors.New("the connection was lost")
}

// A tree of which nothing could be read does not count as closed: a closed one is not looked at again.
func TestAnUnreadTreeIsNotClosed(t *testing.T) {
	g := newGroup("n1", cluster.Paths{Root: "/g"})
	g.settings.Node.ACL = string(zk.ACLPrivate)
	if g.audit(t.Context(), unaudited{}); !g.openTree.Load() {
		t.Error("it counts as closed")
	}
	if g.audit(t.Context(), memorySession{}); g.openTree.Load() {
		t.Error("it does not count as what was read")
	}
}

// A leader that is the elector as well does not rank all members each time that its lease is renewed, unless it is
// time to.
func TestElectorIgnoresRenewals(t *testing.T) {
	const now = time.Hour
	for _, c := range []struct {
		name  string
		ev    transition.Event
		again time.Duration
		want  bool
	}{
		{"a renewal", transition.RenewDone{}, 0, false},
		{"a renewal before it is time", transition.RenewDone{}, now + 1, false},
		{"a renewal when it is time", transition.RenewDone{}, now, true},
		{"a refused renewal", transition.RenewDone{Err: errors.New("refused")}, 0, true},
		{"a timer", transition.Tick{}, now + 1, true},
		{"a snapshot", transition.Saw{}, now + 1, true},
	} {
		if got := concernsElector(c.ev, c.again, now); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// A member that was abandoned does nothing more, whatever its loop finds when it goes on.
func TestAnAbandonedMemberDoesNothing(t *testing.T) {
	began := filepath.Join(t.TempDir(), "began")
	m := joinWith(t, storetest.NewServer(), "a", 0, func(s memorySession) Session { return s }, func(_ *Group, _ *Settings, o *InstanceOptions) {
		o.Work.Hooks = worker.Hooks{PostStop: []string{"touch", began}, Timeout: time.Minute}
	})
	m.instance.Abandon()
	err := <-m.over
	m.over <- err
	if !errors.Is(err, errAbandoned) {
		t.Errorf("it has ended with %v", err)
	}
	ran := 0
	for range 100 {
		m.inbox.post(func() { ran++ })
		m.handleNext()
	}
	if ran > 0 {
		t.Errorf("it has handled %d events", ran)
	}
	m.perform(transition.RunPreStart{Term: 7})
	m.perform(transition.RunPostStop{Term: 7})
	m.worker.Wait()
	if len(m.pendingEvents) > 0 || m.uncleaned.Load() != 0 || testhelper.Read(began) != "" {
		t.Errorf("it has performed actions: %+v, %d", m.pendingEvents, m.uncleaned.Load())
	}
}
