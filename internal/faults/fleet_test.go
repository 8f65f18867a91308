package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/faultproxy"
	"zkelectd/internal/hostfault"
	"zkelectd/internal/policy"
	"zkelectd/internal/zkserver"
)

const (
	sessionTimeout = 3 * time.Second
	takeover       = 5 * time.Second
	restartPause   = 100 * time.Millisecond // the service manager's
)

// settleTimeout is how long it may take until the best member is READY: the expiry of a lost session, a lease wait, a failed
// takeover, and the exclusions that follow, each with a margin for a slow machine.
const settleTimeout = 60 * time.Second

// fleet is an ensemble and four nodes on two sites.
type fleet struct {
	t           *testing.T
	dir         string
	binary      string
	rng         *rand.Rand
	ensemble    *zkserver.Ensemble
	serverLinks map[[2]int][]*faultproxy.Proxy // the connections between servers, by from and to
	session     *zkstore.Session
	paths       cluster.Paths
	nodes       []*node
	revision    int // of the policy
	tables      int // how many tables of the packet filter were created
	starving    int // how many control groups for starved processes were created
}

// node is a host: a zkelectd that is restarted when it exits, as by a service manager.
type node struct {
	f       *fleet
	id      string
	site    string
	prio    int
	proxies []*faultproxy.Proxy // to each server
	wg      sync.WaitGroup

	containment   string
	hidesChildren bool                     // its children always daemonize
	disk          *hostfault.Disk          // contains the program
	memory, cpu   hostfault.ControlGroup   // of all its processes
	emptyGroups   []hostfault.ControlGroup // below cpu, to be removed

	// The faults injected so far, see isPromised.
	killed          map[string]time.Time
	starvedPids     map[int]bool
	behaviorChanged time.Time // when a child's behavior was last changed

	mu      sync.Mutex
	pid     int // of the guard; 0 while none runs
	stopped bool
	down    chan struct{}
}

// newFleet starts a fleet. The seed chooses the properties of each node, which fix may change.
func newFleet(t *testing.T, binary string, seed uint64, fix func(*node)) *fleet {
	t.Helper()
	dir, err := os.MkdirTemp("", "zkelectd-faults-")
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{t: t, dir: dir, binary: binary, rng: rand.New(rand.NewPCG(seed, 1)), serverLinks: make(map[[2]int][]*faultproxy.Proxy), paths: cluster.Paths{Root: "/faults"}}
	t.Cleanup(f.close)
	f.ensemble, err = zkserver.StartEnsemble(t.Context(), 3, zkserver.Options{PeerPort: func(from, to, port int) (int, error) {
		p, err := faultproxy.New(fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return 0, err
		}
		f.serverLinks[[2]int{from, to}] = append(f.serverLinks[[2]int{from, to}], p)
		return p.Port(), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if f.session, err = zkstore.Open(t.Context(), zkstore.Options{Servers: f.ensemble.Addrs(), Timeout: 2 * time.Minute}); err != nil {
		t.Fatal(err)
	}
	f.write(forkScript, []byte(forkText))
	f.write(hogArgument, make([]byte, 4<<20))
	for i := range 4 {
		n := &node{
			f: f, id: fmt.Sprintf("n%d", i+1), site: fmt.Sprintf("dc%d", i/2+1), prio: 100 - i, down: make(chan struct{}),
			containment: containments[f.rng.IntN(len(containments))], killed: make(map[string]time.Time), starvedPids: make(map[int]bool),
			hidesChildren: f.rng.Float64() < 0.5,
		}
		fix(n)
		f.nodes = append(f.nodes, n)
		n.setUp()
		for _, addr := range f.ensemble.Addrs() {
			p, err := faultproxy.New(addr)
			if err != nil {
				t.Fatal(err)
			}
			n.proxies = append(n.proxies, p)
		}
		if n.hidesChildren {
			f.write(daemonizes+"-"+n.id, nil)
		}
		t.Logf("%s: %s, containment %s, children daemonize: %t", n.id, n.site, n.containment, n.hidesChildren)
		n.configure(map[string]int{"dc1": 2, "dc2": 1})
		n.wg.Go(n.supervise)
	}
	return f
}

// containments are the settings from which the seed chooses; auto would depend on the machine.
var containments = []string{"cgroup", "pidns", "keeper"}

// setUp creates the node's disk and control groups.
func (n *node) setUp() {
	err := os.Mkdir(n.f.file("disk-"+n.id), 0o700)
	if err == nil {
		n.disk, err = hostfault.MountDisk(n.f.file("disk-"+n.id), n.f.binary)
	}
	if err == nil {
		n.memory, err = hostfault.NewControlGroup("memory")
	}
	if err == nil {
		n.cpu, err = hostfault.NewControlGroup("cpu")
	}
	if err != nil {
		n.f.t.Fatal(err)
	}
}

// removeTimeout is how long killed processes may take to disappear.
const removeTimeout = 20 * time.Second

// tearDown removes the node's disk and control groups.
func (n *node) tearDown() {
	var errs []error
	for _, g := range append(n.emptyGroups, n.memory, n.cpu) {
		if g.Dir != "" {
			errs = append(errs, g.Remove(removeTimeout))
		}
	}
	if n.disk != nil {
		errs = append(errs, n.disk.Close())
	}
	if err := errors.Join(errs...); err != nil {
		n.f.t.Error(err)
	}
}

func (f *fleet) write(name string, data []byte) {
	if err := os.WriteFile(f.file(name), data, 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) close() {
	for _, n := range f.nodes {
		n.shutDown()
	}
	// Only after all nodes are shut down: the namespaces of one node may use the disk of another.
	for _, n := range f.nodes {
		n.tearDown()
		for _, p := range n.proxies {
			p.Close()
		}
	}
	if f.session != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		f.session.Close(ctx)
	}
	if f.ensemble != nil {
		f.ensemble.Stop()
	}
	for _, proxies := range f.serverLinks {
		for _, p := range proxies {
			p.Close()
		}
	}
	if f.t.Failed() || *keep {
		f.t.Logf("the ledger and the logs are in %s", f.dir)
		return
	}
	os.RemoveAll(f.dir)
}

func (f *fleet) file(name string) string { return filepath.Join(f.dir, name) }

// configure writes the node's configuration file. After a reload its policy becomes that of the group.
func (n *node) configure(sites map[string]int) {
	var servers []string
	for _, p := range n.proxies {
		servers = append(servers, fmt.Sprintf("127.0.0.1:%d", p.Port()))
	}
	text := fmt.Sprintf(`node: {id: %s, site: %s, priority: %d}
zookeeper: {servers: [%s], root: %s, session_timeout: %s, min_session_timeout: %s}
election: {takeover_timeout: %s, exclusion: 500ms, strike_reset_after: 2s, max_preemptions: 0}
policy: {sites: {dc1: %d, dc2: %d}}
child: {command: [%s], env: {LEDGER: %s}, stop_timeout: 300ms, containment: %s}
log: {level: debug}
`, n.id, n.site, n.prio, strings.Join(servers, ", "), n.f.paths.Root, sessionTimeout, minSessionTimeout, takeover, sites["dc1"], sites["dc2"],
		self, n.f.file("ledger"), n.containment)
	n.f.write(n.id+".yaml", []byte(text))
}

// supervise runs until shutDown.
func (n *node) supervise() {
	for {
		cmd := exec.Command("sh", "-c", `echo 0 >"$1"/cgroup.procs && echo 0 >"$2"/cgroup.procs && exec "$3" run --config "$4"`,
			"sh", n.memory.Dir, n.cpu.Dir, n.disk.Program, n.f.file(n.id+".yaml"))
		log, err := os.OpenFile(n.f.file(n.id+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			n.f.t.Error(err)
			return
		}
		cmd.Stdout, cmd.Stderr = log, log
		cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
		n.mu.Lock()
		if n.stopped {
			n.mu.Unlock()
			log.Close()
			return
		}
		if err = cmd.Start(); err == nil {
			n.pid = cmd.Process.Pid
		}
		n.mu.Unlock()
		log.Close()
		if err != nil {
			n.f.t.Error(err)
			return
		}
		cmd.Wait()
		n.mu.Lock()
		n.pid = 0
		n.mu.Unlock()
		pause := time.NewTimer(restartPause)
		select {
		case <-pause.C:
		case <-n.down:
			pause.Stop()
		}
	}
}

// shutDown stops the node for good.
func (n *node) shutDown() {
	n.mu.Lock()
	n.stopped = true
	close(n.down)
	n.mu.Unlock()
	p := n.pids()
	for _, pid := range p {
		syscall.Kill(pid, syscall.SIGCONT)
	}
	if guard := p[guardProcess]; guard != 0 {
		syscall.Kill(guard, syscall.SIGTERM)
		limit := time.AfterFunc(10*time.Second, func() { n.memory.Kill(time.Second) })
		defer limit.Stop()
	}
	n.wg.Wait()
	if n.memory.Dir != "" {
		if err := n.memory.Kill(removeTimeout); err != nil {
			n.f.t.Error(err)
		}
	}
}

// leader returns the node whose child runs; any node if there is none.
func (f *fleet) leader() *node {
	for _, n := range f.nodes {
		if n.pids()[childProcess] != 0 {
			return n
		}
	}
	return f.anyNode()
}

func (f *fleet) anyNode() *node { return f.nodes[f.rng.IntN(len(f.nodes))] }

// victim returns the leader in most cases, or any node.
func (f *fleet) victim() *node {
	if f.rng.Float64() < 0.6 {
		return f.leader()
	}
	return f.anyNode()
}

// whyUnsettled returns what is missing for a stable state: the best member by the policy in force is READY, and its child runs.
// It returns the empty string for a stable state.
func (f *fleet) whyUnsettled(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	snap, err := zkstore.ReadAll(ctx, f.client(ctx), f.paths, false)
	switch {
	case err != nil:
		return err.Error()
	case !snap.Ready():
		return "no member is READY"
	case len(snap.Members) != len(f.nodes):
		return fmt.Sprintf("%d of %d members are registered", len(snap.Members), len(f.nodes))
	case !snap.Policy.Readable():
		return "there is no policy"
	}
	if c := snap.Control.Record; snap.Control.Err != nil || c.Pause != nil || c.Move != nil || c.Reelect != nil || len(c.Cordons) > 0 {
		return fmt.Sprintf("requests are in force: %+v %v", c, snap.Control.Err)
	}
	in := policy.Input{
		Members: snap.Members, Incumbent: snap.Elected.Record.Incarnation, Excluded: make(map[string]string), Circumstances: snap.Elected.Record.Circumstances,
	}
	for _, x := range snap.Elected.Record.Exclusions {
		if !x.Expired {
			in.Excluded[x.Node] = x.Reason
		}
	}
	compiled, err := policy.New(snap.Policy.Record)
	if err != nil {
		return err.Error()
	}
	if best, ok := compiled.Rank(in).Best(); !ok || best.Name != snap.Elected.Record.Incarnation {
		return fmt.Sprintf("%s leads, the best is %s", snap.Elected.Record.Node, best.ID)
	}
	for _, n := range f.nodes {
		if n.id == snap.Elected.Record.Node && n.pids()[childProcess] == 0 {
			return "the leader has no child"
		}
	}
	return ""
}

// converge waits until the fleet has settled, and returns how long it took.
func (f *fleet) converge(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		why := f.whyUnsettled(ctx)
		if why == "" {
			return time.Since(began), nil
		}
		if time.Since(began) > settleTimeout {
			return settleTimeout, fmt.Errorf("not settled %s after the faults: %s", settleTimeout, why)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
