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

// The test process is the daemon of a guard, as in real life.
func TestMain(m *testing.M) {
	guard.MaybeRunKeeper()
	if os.Getenv("GUARDED") == "" {
		os.Setenv("GUARDED", "yes")
		status, err := guard.Run(guard.Options{Path: "/proc/self/exe", Argv: os.Args, Log: slog.Default()})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(status)
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

// run starts a daemon in this process and returns it with what Run will return.
func run(t *testing.T, root, id string, env ...string) (*Host, <-chan error) {
	t.Helper()
	return runWith(t, root, id, func(*Host) {}, env...)
}

// runWith starts a daemon that was changed.
func runWith(t *testing.T, root, id string, change func(*Host), env ...string) (*Host, <-chan error) {
	t.Helper()
	cfg, err := config.Load(config.Sources{Env: append([]string{"ZKELECTD_NODE_ID=" + id, "ZKELECTD_ZOOKEEPER_ROOT=" + root,
		"ZKELECTD_ZOOKEEPER_SERVERS=" + server.Addr(), "ZKELECTD_ZOOKEEPER_SESSION_TIMEOUT=10s"}, env...)})
	if err != nil {
		t.Fatal(err)
	}
	initialize(t, root)
	d := New(Options{Config: cfg, Log: slog.New(slog.DiscardHandler), Guard: guardClient})
	change(d)
	done := make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		done <- d.Run(context.Background())
	}()
	t.Cleanup(func() {
		d.Stop("the test is over")
		<-ended
	})
	return d, done
}

// fresh is the root of a group that has no past, however often the test is run.
func fresh() string { return fmt.Sprint("/g", time.Now().UnixNano()) }

func until(t *testing.T, d *Host, what string, ok func(status.Daemon) bool) {
	t.Helper()
	wait(t, what, func() bool { return ok(d.View()) }, func() string { return fmt.Sprintf("the view is %+v", d.View()) })
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

// A daemon that ends leaves no goroutine behind: TestMain looks for them.
func TestLifeOfTwoDaemons(t *testing.T) {
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
	heard := b.Feed().Newest()
	a.Stop("stopped")
	if err := <-aDone; err != nil {
		t.Errorf("a ended with %v", err)
	}
	until(t, b, "b leads", status.Daemon.Leads)
	until(t, b, "b has read that it does", func(v status.Daemon) bool {
		return v.Holder != nil && *v.Holder == status.Holder{Node: "b", Site: "default", Term: v.Term, State: "READY"}
	})
	var told []string
	events, _, _ := b.Feed().Since(heard)
	for _, e := range events {
		told = append(told, e.Kind+" "+string(e.Data))
	}
	for _, want := range []string{`elected {"node":"b","site":"default",`, `leadership {"node":"b","site":"default",`, `"state":"READY"`, `"state":"leading"`, `"elector":true`} {
		if !strings.Contains(strings.Join(told, "\n"), want) {
			t.Errorf("no %s in\n%s", want, strings.Join(told, "\n"))
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

func TestStopBeforeThereIsAServer(t *testing.T) {
	cfg, err := config.Load(config.Sources{Env: []string{"ZKELECTD_ZOOKEEPER_SERVERS=127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	d := New(Options{Config: cfg, Log: slog.New(slog.DiscardHandler), Guard: guardClient})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Run(ctx); err != nil {
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

// The view of a loop that hangs is not taken for the present.
func TestAStuckLoopIsSeen(t *testing.T) {
	cfg, err := config.Load(config.Sources{Env: []string{"ZKELECTD_NODE_ID=a", "ZKELECTD_ZOOKEEPER_ROOT=/stuck",
		"ZKELECTD_ZOOKEEPER_SERVERS=" + server.Addr(), "ZKELECTD_ZOOKEEPER_SESSION_TIMEOUT=6s", "ZKELECTD_CHILD_STOP_TIMEOUT=1s"}})
	if err != nil {
		t.Fatal(err)
	}
	g := &hangingGuard{Client: guardClient, free: make(chan struct{})}
	d := New(Options{Config: cfg, Log: slog.New(slog.DiscardHandler), Guard: g})
	if v := d.View(); v.State() != "connecting" || v.CheckReady() == nil {
		t.Errorf("before it runs it shows %+v", v)
	}
	done := make(chan error, 1)
	go func() { done <- d.Run(context.Background()) }()
	until(t, d, "leads and is ready", func(v status.Daemon) bool { return v.Leads() && v.CheckReady() == nil })
	g.hang.Store(true)
	until(t, d, "is seen to be stuck", func(v status.Daemon) bool { return v.CheckLoop() != nil })
	if v := d.View(); v.Leads() || v.CheckReady() == nil || v.State() != "stuck" {
		t.Errorf("a stuck loop shows %+v", v)
	}
	if _, err := d.Submit(t.Context(), pausing); err == nil || !strings.HasPrefix(err.Error(), "the event loop has been stuck") {
		t.Errorf("a stuck loop takes a request: %v", err)
	}
	g.hang.Store(false)
	close(g.free)
	until(t, d, "turns again", func(v status.Daemon) bool { return v.CheckLoop() == nil })
	d.Stop("stopped")
	if err := <-done; err != nil {
		t.Errorf("ended with %v", err)
	}
	if v := d.View(); v.Leads() || v.Session || v.CheckHealthy() == nil {
		t.Errorf("after its end it shows %+v", v)
	}
}

// A session that ends by itself is counted, and nothing of it is taken for valid afterwards.
func TestALostSessionIsCounted(t *testing.T) {
	d, _ := run(t, fresh(), "a", "ZKELECTD_CHILD_COMMAND=sleep,1000")
	until(t, d, "leads", status.Daemon.Leads)
	first, s := d.View(), d.cache.Source().Session.(*zkstore.Session)
	if err := zkstore.CloseSession(t.Context(), zkstore.SessionHandle{Servers: []string{server.Addr()}, Session: s.SessionID(), Password: s.Password()}); err != nil {
		t.Fatal(err)
	}
	until(t, d, "leads again, in another session", func(v status.Daemon) bool { return v.Leads() && v.Incarnation != first.Incarnation })
	if n := d.Totals(); n.Sessions != 2 || n.SessionsLost != 1 || n.Restarts != 0 {
		t.Errorf("it has counted %+v", n)
	}
	if v := d.View(); v.Term <= first.Term {
		t.Errorf("term %d after %d", v.Term, first.Term)
	}
}

// What this process left behind it closes itself, instead of waiting for the servers to end it.
func TestSessionLeftBehindIsClosed(t *testing.T) {
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
	d, _ := runWith(t, root, "a", func(d *Host) {
		d.left = zkstore.SessionHandle{Servers: []string{server.Addr()}, Session: old.SessionID(), Password: old.Password()}
	})
	until(t, d, "the daemon is a member", func(v status.Daemon) bool { return v.Elected == "a" })
}
