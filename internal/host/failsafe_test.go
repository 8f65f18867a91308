package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/failsafe/peer"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/test/zkserver"
	"zkelectd/internal/transition/failsafe"
	"zkelectd/internal/zk"
)

// outageSession is the session timeout of these tests. The lease is 1.8 s, and a member finds out in 300 ms that ZooKeeper does not
// answer.
const outageSession = 4 * time.Second

// fleet is several hosts of one group on a server of their own, which can be killed.
type fleet struct {
	t      *testing.T
	server *zkserver.Server
	root   string
	dir    string
	auth   string
	hosts  []*safeHost
	env    []string         // further settings of the hosts that are started next
	setUp  func(host *Host) // called with each host before it starts; nil for nothing
	// stateDir is the state directory of the hosts that are started next; empty for one that has the name of the host.
	stateDir string
}

// safeHost is a host with its listener for the other members.
type safeHost struct {
	only
	id   string
	http *httptest.Server
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	s := zkserver.ForTest(t, zkserver.Options{})
	f := &fleet{t: t, server: s, root: fresh(), dir: t.TempDir()}
	f.auth = filepath.Join(f.dir, "auth")
	put(t, f.auth, "z:secret\n")
	return f
}

// starts returns how often the work has started, on any host.
func (f *fleet) starts() int {
	data, _ := os.ReadFile(filepath.Join(f.dir, "starts"))
	return strings.Count(string(data), "start")
}

// start starts hosts, each with a lower priority than those before. stop stops the last one.
func (f *fleet) start(safe bool, ids ...string) (stop func()) {
	f.t.Helper()
	for i, id := range ids {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			f.t.Fatal(err)
		}
		cfg := load(f.t, append([]string{"ZKELECTD_NODE_ID=" + id, "ZKELECTD_ZOOKEEPER_ROOT=" + f.root, "ZKELECTD_ZOOKEEPER_SERVERS=" + f.server.Addr(),
			"ZKELECTD_ZOOKEEPER_SESSION_TIMEOUT=" + outageSession.String(), "ZKELECTD_ZOOKEEPER_ACL=private", "ZKELECTD_ZOOKEEPER_AUTH_FILE=" + f.auth,
			fmt.Sprintf("ZKELECTD_NODE_PRIORITY=%d", 100-i-10*len(f.hosts)), "ZKELECTD_CHILD_STOP_TIMEOUT=100ms",
			"ZKELECTD_POLICY_FAILBACK=immediate",
			"ZKELECTD_CHILD_COMMAND=sh,-c,echo start >>" + filepath.Join(f.dir, "starts") + "; exec sleep 1000",
			fmt.Sprintf("ZKELECTD_FAILSAFE_ENABLED=%t", safe), "ZKELECTD_FAILSAFE_LISTEN=" + listener.Addr().String()}, f.env...)...)
		if len(f.hosts) == 0 {
			f.initialize(operator.Access(cfg.Config, os.Getenv))
		}
		stop = f.run(id, cfg, listener)
	}
	return stop
}

// run runs a host that answers the others at a listener. stop stops it.
func (f *fleet) run(id string, cfg config.Host, listener net.Listener) (stop func()) {
	f.t.Helper()
	h := &safeHost{id: id, only: newOnly(Options{
		Config: cfg, StateDir: filepath.Join(f.dir, cmp.Or(f.stateDir, id)), Log: slog.New(slog.NewTextHandler(logTo{f.t, id}, nil)), Guard: guardClient,
	})}
	if f.setUp != nil {
		f.setUp(h.Host)
	}
	h.http = httptest.NewUnstartedServer(h.HandleFailsafe(http.NotFoundHandler()))
	h.http.Listener.Close()
	h.http.Listener = listener
	h.http.Start()
	f.hosts = append(f.hosts, h)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.Run(context.Background())
	}()
	stop = sync.OnceFunc(func() {
		h.Stop("the test is over")
		<-ended
		h.http.Close()
	})
	f.t.Cleanup(stop)
	return stop
}

// logTo writes a host's log to the test's.
type logTo struct {
	t  *testing.T
	id string
}

func (l logTo) Write(line []byte) (int, error) {
	l.t.Logf("%s: %s", l.id, line)
	return len(line), nil
}

func (f *fleet) session(access zk.Access) *zk.Session {
	f.t.Helper()
	s, err := zk.Open(f.t.Context(), zk.Options{Servers: []string{f.server.Addr()}, Timeout: 10 * time.Second, Access: access})
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

func (f *fleet) initialize(access zk.Access) {
	f.t.Helper()
	s := f.session(access)
	defer s.Close(context.Background())
	if err := store.Init(f.t.Context(), s, cluster.Paths{Root: f.root}, "the test"); err != nil {
		f.t.Fatal(err)
	}
}

// leads waits until a host leads with the promises of others.
func (f *fleet) leads(h *safeHost, with ...string) {
	f.t.Helper()
	wait(f.t, fmt.Sprint(h.id, " leads with the promises of ", with), func() bool {
		s := h.Failsafe()
		return h.View().Leads() && slices.Equal(s.Asks, with)
	}, func() string { return fmt.Sprintf("%+v %+v", h.View(), h.Failsafe()) })
}

// outage kills the server, and calls check until the outage has lasted for a time.
func (f *fleet) outage(lasts time.Duration, check func() error) {
	f.t.Helper()
	began := boottime.Now()
	f.server.Kill()
	f.watch(began+lasts, check)
	if err := f.server.Restart(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

// watch calls check until a time.
func (f *fleet) watch(until time.Duration, check func() error) {
	f.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for boottime.Now() < until {
		if err := check(); err != nil {
			f.t.Fatal(err)
		}
		<-tick.C
	}
}

// unchanged returns a check that a host leads in the same term with the work that was started once.
func (f *fleet) unchanged(h *safeHost) func() error {
	f.t.Helper()
	wait(f.t, "the work has begun", func() bool { return f.starts() > 0 })
	term, starts, began := h.View().Term, f.starts(), boottime.Now()
	return func() error {
		v := h.View()
		if !v.Leads() || v.Term != term || !v.Child || f.starts() != starts {
			return fmt.Errorf("%s after %s: leads %t in term %d (%d before), work runs: %t, %d starts (%d before); %+v; %+v", h.id,
				boottime.Now()-began, v.Leads(), v.Term, term, v.Child, f.starts(), starts, h.Failsafe(), h.Totals().Failsafe)
		}
		return nil
	}
}

// The leader works on through a long outage if all others promise, whoever has left before, and stops if one of them is lost during it.
func TestOutageInFailsafeMode(t *testing.T) {
	f := newFleet(t)
	f.start(true, "a", "b", "c")
	a, c := f.hosts[0], f.hosts[2]
	f.leads(a, "b", "c")
	wait(t, "all are ready", func() bool {
		return !slices.ContainsFunc(f.hosts, func(h *safeHost) bool { return !h.Failsafe().Ready })
	}, func() string { return fmt.Sprintf("%+v %+v %+v", a.Failsafe(), f.hosts[1].Failsafe(), c.Failsafe()) })
	check := f.unchanged(a)
	f.outage(4*outageSession, check)
	if n := a.Totals().Failsafe; n.Extended == 0 || n.Promised < 2*n.Extended {
		t.Errorf("counted %+v", n)
	}
	wait(t, "ZooKeeper has renewed the lease", func() bool { return a.Failsafe().ActiveSince == 0 && a.View().Connected })
	f.watch(boottime.Now()+2*outageSession, check) // the end of an outage stops nobody

	t.Log("a member dies before the outage")
	access := operator.Access(a.Group.config(), os.Getenv)
	dead := f.session(access)
	_, err := store.Register(t.Context(), dead, cluster.Paths{Root: f.root}, cluster.Node{
		ID: "d", Instance: cluster.NewInstance(1), SessionTimeout: cluster.Duration(outageSession), Failsafe: &cluster.FailsafeNode{Key: "x", Address: "127.0.0.1:1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	f.leads(a, "b", "c", "d")
	dead.Close(context.Background())
	f.leads(a, "b", "c")
	f.outage(2*outageSession, check)
	wait(t, "ZooKeeper has renewed the lease", func() bool { return a.Failsafe().ActiveSince == 0 && a.View().Connected })

	t.Log("a member is lost during the outage")
	f.leads(a, "b", "c") // again, if a busy machine was too slow to come back before the sessions expired
	starts := f.starts()
	f.server.Kill()
	wait(t, "the lease is extended", func() bool { return a.Failsafe().ActiveSince != 0 })
	c.http.Close()
	lost := boottime.Now()
	wait(t, "the leader has stopped", func() bool { return !a.View().Child })
	if took := boottime.Now() - lost; took > cluster.Lease(outageSession)+time.Second {
		t.Errorf("it took %s", took)
	}
	if err := f.server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait(t, "somebody leads again", func() bool {
		return slices.ContainsFunc(f.hosts, func(h *safeHost) bool { return h.View().Leads() })
	})
	wait(t, "the work has started again, once", func() bool { return f.starts() == starts+1 }, func() string { return fmt.Sprint(f.starts(), " starts") })
}

// A host that cannot read what it has promised does not start.
func TestDamagedFailsafeState(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	path := filepath.Join(dir, "failsafe.json")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, path, "{")
	cfg := load(t, "ZKELECTD_FAILSAFE_ENABLED=true")
	err := New(Options{Config: cfg, StateDir: dir, Log: slog.New(slog.DiscardHandler), Guard: guardClient, Create: true}).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("ended with %v", err)
	}
}

// A reload enables failsafe mode: a standby takes part at once, and a leader as soon as it no longer leads. Another one
// turns it off: the leader asks nobody any more, and all hosts forget the group for it.
func TestFailsafeModeByReload(t *testing.T) {
	f := newFleet(t)
	var enabled atomic.Bool
	enabled.Store(true)
	f.setUp = func(h *Host) {
		next := h.opt.Config.Config
		if next.Node.ID == "a" {
			next.Node.Priority = 1 // b is better then
		}
		h.opt.Reload = func(config.Host, bool) (Reloaded, error) {
			next.Failsafe.Enabled = enabled.Load()
			return reloaded(h, next), nil
		}
	}
	f.start(false, "a", "b")
	a, b := f.hosts[0], f.hosts[1]
	until(t, a.only, "a leads", status.Daemon.Leads)
	until(t, b.only, "b is a member", func(v status.Daemon) bool { return v.Elected == "a" })
	for _, h := range f.hosts {
		if s := h.Failsafe(); s.Enabled || s.TakesPart {
			t.Errorf("%s: %+v", h.id, s)
		}
		if _, err := os.Stat(filepath.Join(f.dir, h.id)); !os.IsNotExist(err) {
			t.Errorf("a state directory was created: %v", err)
		}
	}
	b.Reload()
	wait(t, "b takes part", func() bool { return b.Failsafe().TakesPart })
	if s := a.Failsafe(); s.TakesPart {
		t.Errorf("a: %+v", s)
	}
	a.Reload()
	f.leads(b, "a")

	wait(t, "the work of b has begun", func() bool { return f.starts() == 2 })
	check := f.unchanged(b)
	enabled.Store(false)
	a.Reload()
	f.leads(b)
	wait(t, "a takes no part, as configured", func() bool {
		s := a.Failsafe()
		return !s.Enabled && !s.TakesPart && s.Problem == ""
	}, func() string { return fmt.Sprintf("%+v", a.Failsafe()) })
	b.Reload()
	shown := func() string { return fmt.Sprintf("%+v", f.state(b)) }
	wait(t, "the fence names nobody", func() bool { return f.state(b) == nil }, shown)
	if err := check(); err != nil {
		t.Error(err)
	}
}

// lose makes the group lose its leader in an outage, with what the others have promised to it: all hosts end without a release.
func (f *fleet) lose(stops ...func()) {
	f.t.Helper()
	f.server.Kill()
	var stopping sync.WaitGroup
	for _, stop := range stops {
		stopping.Go(stop)
	}
	stopping.Wait()
	if err := f.server.Restart(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

// state returns what status shows of failsafe mode.
func (f *fleet) state(h *safeHost) *status.GroupFailsafe {
	f.t.Helper()
	g, err := h.State(f.t.Context())
	if err != nil {
		return nil
	}
	return g.Failsafe
}

// Hosts that are started again without failsafe mode, after their leader was lost in it, still agree to a successor.
func TestTurnedOffAfterTheLeaderWasLost(t *testing.T) {
	f := newFleet(t)
	stopA := f.start(true, "a")
	until(t, f.hosts[0].only, "a leads", status.Daemon.Leads)
	stopB, stopC := f.start(true, "b"), f.start(true, "c")
	f.leads(f.hosts[0], "b", "c")
	f.lose(stopA, stopB, stopC)
	f.start(false, "x") // has promised nothing, and may not lead before another one agrees
	x := f.hosts[3]
	until(t, x.only, "x is elected", func(v status.Daemon) bool { return v.Elected == "x" })
	wait(t, "x waits", func() bool { s := f.state(x); return s != nil && s.Stuck })
	if x.View().Leads() {
		t.Fatal("x leads")
	}
	f.start(false, "b")
	wait(t, "somebody leads", func() bool { return x.View().Leads() || f.hosts[4].View().Leads() }, func() string { return fmt.Sprintf("%+v", f.state(x)) })
	b := f.hosts[4]
	if s := b.Failsafe(); s.Enabled || s.TakesPart || len(s.Asks) > 0 {
		t.Errorf("b: %+v", s)
	}
}

// Without its state directory a host cannot agree, and says so. One that cannot know what it has promised takes no part
// in a group that uses failsafe mode, and says why. Once its state can be read, it takes part by itself.
func TestTurnedOffWithAnUnreadableState(t *testing.T) {
	f := newFleet(t)
	stopA := f.start(true, "a")
	until(t, f.hosts[0].only, "a leads", status.Daemon.Leads)
	stopB := f.start(true, "b")
	f.leads(f.hosts[0], "b")
	f.lose(stopA, stopB)
	f.stateDir = "another"
	stopB = f.start(false, "b")
	stuck := f.hosts[2]
	problems := func() string {
		g, err := stuck.State(t.Context())
		return fmt.Sprint(err, strings.Join(g.Problems, "; "))
	}
	wait(t, "b is stuck, and says why", func() bool {
		s := f.state(stuck)
		return s != nil && s.Stuck && strings.Contains(problems(), "b is registered, but without the state directory that it had")
	}, problems)
	stopB()
	f.stateDir = ""

	path := filepath.Join(f.dir, "b", "failsafe.json")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, damage := range []struct {
		says       string
		do, repair func() error
	}{
		{"chmod 0600 " + path, func() error { return os.Chmod(path, 0o644) }, func() error { return os.Chmod(path, 0o600) }},
		{path + " is not a failsafe state", func() error { return os.WriteFile(path, good[:9], 0o600) }, func() error { return os.WriteFile(path, good, 0o600) }},
	} {
		if err := damage.do(); err != nil {
			t.Fatal(err)
		}
		stopB = f.start(false, "b")
		b := f.hosts[len(f.hosts)-1]
		until(t, b.only, "b is refused, and says why", func(v status.Daemon) bool {
			return v.Membership == status.MembershipRefused && strings.Contains(v.MembershipReason, damage.says)
		})
		if v := b.View(); v.Incarnation != "" || v.Leads() {
			t.Errorf("b takes part: %+v", v)
		}
		if i == 0 {
			stopB()
		}
		if err := damage.repair(); err != nil {
			t.Fatal(err)
		}
	}
	b := f.hosts[len(f.hosts)-1]
	until(t, b.only, "b takes part by itself, and leads", status.Daemon.Leads)
	stopB()

	// Nothing binds any more, so the state does not matter.
	if err := os.WriteFile(path, good[:9], 0o600); err != nil {
		t.Fatal(err)
	}
	f.start(false, "b")
	b = f.hosts[len(f.hosts)-1]
	until(t, b.only, "b leads without its state", status.Daemon.Leads)
}

// Somebody makes the key readable for everybody while it is in use: the members say so until that is repaired.
func TestExposedKey(t *testing.T) {
	f := newFleet(t)
	f.setUp = func(h *Host) { h.failsafe.auditPace = time.Millisecond }
	f.start(true, "a", "b")
	a := f.hosts[0]
	f.leads(a, "b")
	wait(t, "a is ready", func() bool { return a.Failsafe().Ready })
	conn, _, err := gozk.Connect([]string{f.server.Addr()}, 10*time.Second, gozk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.AddAuth("digest", []byte("z:secret")); err != nil {
		t.Fatal(err)
	}
	path := cluster.Paths{Root: f.root}.FailsafeKeys()
	closed, _, err := conn.GetACL(path)
	if err != nil {
		t.Fatal(err)
	}
	change := func(list []gozk.ACL) {
		t.Helper()
		if _, err := conn.SetACL(path, list, -1); err != nil {
			t.Fatal(err)
		}
	}
	change(append(gozk.WorldACL(gozk.PermRead), closed...))
	for _, h := range f.hosts {
		wait(t, h.id+" says so", func() bool { return strings.Contains(h.Failsafe().Problem, "all clients can read znode "+path) })
		if s := h.Failsafe(); s.Ready || !s.TakesPart {
			t.Errorf("%s: %+v", h.id, s)
		}
	}
	change(closed)
	wait(t, "it is repaired", func() bool { return a.Failsafe().Problem == "" })
}

// What the agent has in memory counts, not its file: that may be gone, or damaged, while the daemon runs, and what this host has promised
// binds it all the same.
func TestTheAgentInMemoryIsAskedBeforeItsFile(t *testing.T) {
	for name, spoil := range map[string]func(file string) error{
		"gone":           os.Remove,
		"damaged":        func(file string) error { return os.WriteFile(file, []byte("{"), 0o600) },
		"open to others": func(file string) error { return os.Chmod(file, 0o644) },
	} {
		dir := t.TempDir()
		h := newOnly(Options{Config: load(t, "ZKELECTD_NODE_ID=a", "ZKELECTD_ZOOKEEPER_ROOT=/g"), StateDir: dir, Log: slog.New(slog.DiscardHandler), Guard: guardClient})
		f := h.failsafe
		a, err := f.open()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(f.close)
		m := &membership{session: &session{host: h.Host}, resource: h.Group.resource}
		if err := errors.Join(a.TakePart(failsafe.Group(cluster.Paths{Root: "/other"})), spoil(filepath.Join(dir, "failsafe.json"))); err != nil {
			t.Fatal(err)
		}
		if p, err := m.agree(t.Context()); p != nil || err != nil {
			t.Errorf("%s, and it took no part in the group: %+v, %v", name, p, err)
		}
		if err := errors.Join(a.TakePart(failsafe.Group(m.resource.paths())), spoil(filepath.Join(dir, "failsafe.json"))); err != nil {
			t.Fatal(err)
		}
		if p, err := m.agree(t.Context()); err != nil || p == nil || p.agent != a {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}

// Once the host has ended, it answers nobody.
func TestNoAnswersAfterTheEnd(t *testing.T) {
	f := newFleet(t)
	stop := f.start(true, "a")
	a := f.hosts[0]
	until(t, a.only, "a leads", status.Daemon.Leads)
	ask := func() int {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, peer.Path, strings.NewReader("{}"))
		a.HandleFailsafe(http.NotFoundHandler()).ServeHTTP(w, r)
		return w.Code
	}
	if got := ask(); got != http.StatusBadRequest {
		t.Errorf("answered %d", got)
	}
	stop()
	if got := ask(); got != http.StatusNotFound {
		t.Errorf("after the end: answered %d", got)
	}
}
