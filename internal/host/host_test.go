package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/config"
	"zkelectd/internal/group"
	"zkelectd/internal/guard"
	"zkelectd/internal/status"
	"zkelectd/internal/zkserver"
)

var (
	server      *zkserver.Server
	guardClient *guard.Client
)

// The test process is the daemon of a guard, as in production.
func TestMain(m *testing.M) {
	guard.MaybeRunKeeper()
	if os.Getenv("GUARDED") == "" {
		os.Setenv("GUARDED", "yes")
		code, err := guard.Run(guard.Options{Path: "/proc/self/exe", Argv: os.Args, Log: slog.Default()})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(code)
	}
	var err error
	if guardClient, err = guard.Connect(guard.SocketFD, slog.Default()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if server, err = zkserver.Start(context.Background(), zkserver.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	server.Stop()
	guardClient.Close()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// initialize creates the group if it is new, so that its first leader need not wait.
func initialize(t *testing.T, root string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s, err := zkstore.Open(ctx, zkstore.Options{Servers: []string{server.Addr()}, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(ctx)
	var used *cluster.InUseError
	if err := zkstore.Init(ctx, s, cluster.Paths{Root: root}, "the test"); err != nil && !errors.As(err, &used) {
		t.Fatal(err)
	}
}

// run starts a host in this process. It returns the host and a channel with the result of Run.
func run(t *testing.T, root, id string, env ...string) (*Host, <-chan error) {
	t.Helper()
	return runWith(t, root, id, func(*Host) {}, env...)
}

// runWith changes a host and starts it.
func runWith(t *testing.T, root, id string, change func(*Host), env ...string) (*Host, <-chan error) {
	t.Helper()
	cfg, err := config.Load(config.Sources{Env: append([]string{"ZKELECTD_NODE_ID=" + id, "ZKELECTD_ZOOKEEPER_ROOT=" + root,
		"ZKELECTD_ZOOKEEPER_SERVERS=" + server.Addr(), "ZKELECTD_ZOOKEEPER_SESSION_TIMEOUT=10s"}, env...)})
	if err != nil {
		t.Fatal(err)
	}
	initialize(t, root)
	h := New(Options{Config: cfg, Log: slog.New(slog.DiscardHandler), Guard: guardClient})
	change(h)
	done := make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		done <- h.Run(context.Background())
	}()
	t.Cleanup(func() {
		h.Stop("the test is over")
		<-ended
	})
	return h, done
}

// fresh returns the root of a new group, however often the test is run.
func fresh() string { return fmt.Sprint("/g", time.Now().UnixNano()) }

func until(t *testing.T, h *Host, what string, ok func(status.Daemon) bool) {
	t.Helper()
	wait(t, what, func() bool { return ok(h.View()) }, func() string { return fmt.Sprintf("the view is %+v", h.View()) })
}

// wait waits for a condition.
func wait(t *testing.T, what string, ok func() bool, state ...func() string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(30 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			for _, s := range state {
				t.Log(s())
			}
			t.Fatalf("did not happen: %s", what)
		}
	}
}

// A host that has ended leaves no goroutine: TestMain checks that.
func TestLeadershipPassesToTheOtherHost(t *testing.T) {
	root := fresh()
	a, aDone := run(t, root, "a", "ZKELECTD_CHILD_COMMAND=sleep,1000")
	until(t, a, "a leads", status.Daemon.Leads)
	b, bDone := run(t, root, "b")
	until(t, b, "b has seen the decision", func(v status.Daemon) bool { return v.Elected == "a" })
	if v := a.View(); !v.Elector || v.Term == 0 || v.LeaseRemaining <= 0 || v.LeaseRemaining > cluster.Duration(4500*time.Millisecond) {
		t.Errorf("the leader shows %+v", v)
	}
	if v := b.View(); v.Elector || v.Leads() || v.Phase != "standby" {
		t.Errorf("the standby shows %+v", v)
	}
	until(t, a, "a counts both members", func(v status.Daemon) bool { return v.Sites["default"].Eligible == 2 })
	if n := a.Totals(); n.Sessions != 1 || n.SessionsLost != 0 || n.Transitions[status.Transition{Cause: "first", Result: "ready"}] != 1 || n.ReloadFailed {
		t.Errorf("a has counted %+v", n)
	}
	if count, _, _ := a.Totals().Writes.Cumulative(); count < 2 { // ACQUIRE and READY
		t.Errorf("%d writes", count)
	}
	for what, n := range b.Totals().Transitions {
		if n != 0 {
			t.Errorf("b, which was not the elector, has counted %d of %+v", n, what)
		}
	}
	newest := b.Feed().Newest()
	a.Stop("stopped")
	if err := <-aDone; err != nil {
		t.Errorf("a ended with %v", err)
	}
	until(t, b, "b leads", status.Daemon.Leads)
	until(t, b, "b shows its own leadership", func(v status.Daemon) bool {
		return v.Holder != nil && *v.Holder == status.Holder{Node: "b", Site: "default", Term: v.Term, State: "READY"}
	})
	var got []string
	events, _, _ := b.Feed().Since(newest)
	for _, e := range events {
		got = append(got, e.Kind+" "+string(e.Data))
	}
	for _, want := range []string{`elected {"node":"b","site":"default",`, `leadership {"node":"b","site":"default",`, `"state":"READY"`, `"state":"leading"`, `"elector":true`} {
		if !strings.Contains(strings.Join(got, "\n"), want) {
			t.Errorf("no %s in\n%s", want, strings.Join(got, "\n"))
		}
	}
	if v := a.View(); v.Leads() {
		t.Errorf("after its end a shows %+v", v)
	}
	until(t, b, "b sees itself alone", func(v status.Daemon) bool { return v.Sites["default"].Eligible == 1 })
	b.Stop("stopped")
	if err := <-bDone; err != nil {
		t.Errorf("b ended with %v", err)
	}
}

func TestStopWithoutAServer(t *testing.T) {
	cfg, err := config.Load(config.Sources{Env: []string{"ZKELECTD_ZOOKEEPER_SERVERS=127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	h := New(Options{Config: cfg, Log: slog.New(slog.DiscardHandler), Guard: guardClient})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Run(ctx); err != nil {
		t.Errorf("ended with %v", err)
	}
}

// hangingGuard is a guard whose heartbeats hang the loop.
type hangingGuard struct {
	*guard.Client
	hang atomic.Bool
	free chan struct{}
}

func (g *hangingGuard) Heartbeat(until time.Duration) {
	if g.hang.Load() {
		<-g.free
	}
	g.Client.Heartbeat(until)
}

// The view of a stuck loop is reported as outdated.
func TestStuckLoopIsReported(t *testing.T) {
	cfg, err := config.Load(config.Sources{Env: []string{"ZKELECTD_NODE_ID=a", "ZKELECTD_ZOOKEEPER_ROOT=/stuck",
		"ZKELECTD_ZOOKEEPER_SERVERS=" + server.Addr(), "ZKELECTD_ZOOKEEPER_SESSION_TIMEOUT=6s", "ZKELECTD_CHILD_STOP_TIMEOUT=1s"}})
	if err != nil {
		t.Fatal(err)
	}
	g := &hangingGuard{Client: guardClient, free: make(chan struct{})}
	h := New(Options{Config: cfg, Log: slog.New(slog.DiscardHandler), Guard: g})
	if v := h.View(); v.State() != "connecting" || v.CheckReady() == nil {
		t.Errorf("before it runs it shows %+v", v)
	}
	done := make(chan error, 1)
	go func() { done <- h.Run(context.Background()) }()
	until(t, h, "leads and is ready", func(v status.Daemon) bool { return v.Leads() && v.CheckReady() == nil })
	g.hang.Store(true)
	until(t, h, "is seen to be stuck", func(v status.Daemon) bool { return v.CheckLoop() != nil })
	if v := h.View(); v.Leads() || v.CheckReady() == nil || v.State() != "stuck" {
		t.Errorf("a stuck loop shows %+v", v)
	}
	if _, err := h.Submit(t.Context(), pausing); err == nil || !strings.HasPrefix(err.Error(), "the event loop has been stuck") {
		t.Errorf("a stuck loop takes a request: %v", err)
	}
	g.hang.Store(false)
	close(g.free)
	until(t, h, "runs again", func(v status.Daemon) bool { return v.CheckLoop() == nil })
	h.Stop("stopped")
	if err := <-done; err != nil {
		t.Errorf("ended with %v", err)
	}
	if v := h.View(); v.Leads() || v.Session || v.CheckHealthy() == nil {
		t.Errorf("after its end it shows %+v", v)
	}
}

// A session that ends unexpectedly is counted, and the next one begins a new term.
func TestLostSessionIsCounted(t *testing.T) {
	h, _ := run(t, fresh(), "a", "ZKELECTD_CHILD_COMMAND=sleep,1000")
	until(t, h, "leads", status.Daemon.Leads)
	first, s := h.View(), h.cache.Source().Session.(*zkstore.Session)
	if err := zkstore.CloseSession(t.Context(), zkstore.SessionHandle{Servers: []string{server.Addr()}, Session: s.SessionID(), Password: s.Password()}); err != nil {
		t.Fatal(err)
	}
	until(t, h, "leads again, in another session", func(v status.Daemon) bool { return v.Leads() && v.Incarnation != first.Incarnation })
	if n := h.Totals(); n.Sessions != 2 || n.SessionsLost != 1 || n.Restarts != 0 {
		t.Errorf("it has counted %+v", n)
	}
	if v := h.View(); v.Term <= first.Term {
		t.Errorf("term %d after %d", v.Term, first.Term)
	}
}

// The host closes a session that it has left open, instead of waiting for the servers to expire it.
func TestUnclosedSessionIsClosed(t *testing.T) {
	root := fresh()
	old, err := zkstore.Open(t.Context(), zkstore.Options{Servers: []string{server.Addr()}, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close(t.Context())
	paths := cluster.Paths{Root: root}
	me := group.Identify(guardClient.GuardPid())
	if err := zkstore.EnsureTree(t.Context(), old, paths); err != nil {
		t.Fatal(err)
	}
	if _, err := zkstore.Register(t.Context(), old, paths, cluster.Node{ID: "a", Host: me.Host, Boot: me.Boot, PID: me.PID, Started: me.Started}); err != nil {
		t.Fatal(err)
	}
	h, _ := runWith(t, root, "a", func(h *Host) {
		h.unclosed = zkstore.SessionHandle{Servers: []string{server.Addr()}, Session: old.SessionID(), Password: old.Password()}
	})
	until(t, h, "the daemon is a member", func(v status.Daemon) bool { return v.Elected == "a" })
}
