package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/guard"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
	"zkelectd/internal/test/testhelper"
	"zkelectd/internal/test/zkserver"
	"zkelectd/internal/zk"
)

var (
	server      *zkserver.Server
	guardClient *guard.Client
)

// leaveOpen is the Close of the guard: the session of a test that the guard ends is left to expire.
func leaveOpen(context.Context, guard.Credentials) (string, error) {
	return "", errors.New("the guard of the tests closes no session")
}

func closeGuard() error {
	guardClient.Close()
	return nil
}

// The test process is the daemon of a guard, as in production.
func TestMain(m *testing.M) {
	guard.MaybeRunKeeper()
	if os.Getenv("GUARDED") == "" {
		os.Setenv("GUARDED", "yes")
		code, err := guard.Run(guard.Options{Path: "/proc/self/exe", Argv: os.Args, Log: slog.Default(), Close: leaveOpen})
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
	testhelper.RunMain(m, server.Stop, closeGuard)
}

// initialSession returns a session that is closed at the end of the test.
func initialSession(t *testing.T) *zk.Session {
	t.Helper()
	s, err := zk.Open(t.Context(), zk.Options{Servers: []string{server.Addr()}, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

// initialize creates the group if it is new, so that its first leader need not wait.
func initialize(t *testing.T, root string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s, err := zk.Open(ctx, zk.Options{Servers: []string{server.Addr()}, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(ctx)
	var used *cluster.InUseError
	if err := store.Init(ctx, s, cluster.Paths{Root: root}, "the test"); err != nil && !errors.As(err, &used) {
		t.Fatal(err)
	}
}

// only is a host with one group.
type only struct {
	*Host
	*Group
}

func (h only) Stop(reason string) { h.Host.Stop(reason) }

func (h only) config() config.Config { return h.Group.config() }

// Totals returns the counters of the host.
func (h only) Totals() status.Totals { return h.Host.Totals() }

// session returns the host's session.
func (h only) zk() *zk.Session {
	h.Host.mu.Lock()
	defer h.Host.mu.Unlock()
	return h.Host.session.zk
}

// newOnly returns a host with one group.
func newOnly(opt Options) only {
	opt.Create = true
	h := New(opt)
	return only{h, h.Groups()[0]}
}

func load(t *testing.T, env ...string) config.Host {
	t.Helper()
	cfg, err := config.LoadHost(config.Sources{Env: env})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// run starts a host in this process. It returns the host and a channel with the result of Run.
func run(t *testing.T, root, id string, env ...string) (only, <-chan error) {
	t.Helper()
	return runWith(t, root, id, func(*Host) {}, env...)
}

// runWith changes a host and starts it.
func runWith(t *testing.T, root, id string, change func(*Host), env ...string) (only, <-chan error) {
	t.Helper()
	cfg := load(t, append([]string{"ZKELECTD_NODE_ID=" + id, "ZKELECTD_ZOOKEEPER_ROOT=" + root,
		"ZKELECTD_ZOOKEEPER_SERVERS=" + server.Addr(), "ZKELECTD_ZOOKEEPER_SESSION_TIMEOUT=10s", "ZKELECTD_ELECTION_SETTLE=0s"}, env...)...)
	initialize(t, root)
	h := newOnly(Options{Config: cfg, Log: slog.New(slog.DiscardHandler), Guard: guardClient})
	change(h.Host)
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

// put writes a file that only its owner can read.
func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// fresh returns the root of a new group, however often the test is run.
func fresh() string { return fmt.Sprint("/g", time.Now().UnixNano()) }

func until(t *testing.T, h only, what string, ok func(status.Daemon) bool) {
	t.Helper()
	wait(t, what, func() bool { return ok(h.View()) }, func() string { return fmt.Sprintf("the view is %+v", h.View()) })
}

// wait waits for a condition.
func wait(t *testing.T, what string, ok func() bool, state ...func() string) {
	t.Helper()
	testhelper.Eventually(t, 30*time.Second, what, ok, state...)
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
	b.Feed().Follow()
	until(t, b, "b, a standby, knows who leads", func(v status.Daemon) bool {
		return v.Holder != nil && v.Holder.Node == "a" && v.Holder.State == "READY"
	})
	newest := b.Feed().Newest()
	a.Stop("stopped")
	if err := <-aDone; err != nil {
		t.Errorf("a ended with %v", err)
	}
	until(t, b, "b leads", status.Daemon.Leads)
	until(t, b, "b shows its own leadership", func(v status.Daemon) bool {
		return v.Holder != nil && *v.Holder == status.Holder{Node: "b", Site: "default", Term: v.Term, State: "READY"}
	})
	var got string
	wait(t, "b's events", func() bool { // it leads before the session of a, the elector, ends
		got = ""
		events, _, _ := b.Feed().Since(newest)
		for _, e := range events {
			got += e.Kind + " " + string(e.Data) + "\n"
		}
		for _, want := range []string{`leadership {"node":"b","site":"default",`, `"state":"READY"`, `"state":"leading"`, `"elector":true`} {
			if !strings.Contains(got, want) {
				return false
			}
		}
		return true
	}, func() string { return got })
	if v := a.View(); v.Leads() {
		t.Errorf("after its end a shows %+v", v)
	}
	until(t, b, "b sees itself alone", func(v status.Daemon) bool { return v.Sites["default"].Eligible == 1 })
	b.Stop("stopped")
	if err := <-bDone; err != nil {
		t.Errorf("b ended with %v", err)
	}
}
