package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/test/faultproxy"
	"zkelectd/internal/test/hostfault"
	"zkelectd/internal/test/record"
	"zkelectd/internal/test/zkserver"
	"zkelectd/internal/zk"
)

const (
	sessionTimeout = 3 * time.Second
	takeover       = 5 * time.Second
	restartPause   = 100 * time.Millisecond // the service manager's
)

// settleTimeout is how long it may take until the best member is READY: the expiry of a lost session, a lease wait, a failed
// takeover, and the exclusions that follow, each with a margin for a slow machine.
const settleTimeout = 60 * time.Second

// fleetOptions describe a fleet.
type fleetOptions struct {
	binary string
	groups int
	seed   uint64      // chooses the properties of each node
	fix    func(*node) // may change them
	// failsafe closes the tree, and turns failsafe mode on in all groups but the last.
	failsafe bool
}

// fleet is an ensemble and four nodes on two sites, with one group or several.
type fleet struct {
	fleetOptions
	t           *testing.T
	dir         string
	rng         *rand.Rand
	ensemble    *zkserver.Ensemble
	serverLinks map[[2]int][]*faultproxy.Proxy // the connections between servers, by from and to
	session     *zk.Session
	groups      []*group
	nodes       []*node
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
	byName  bool                // its servers are the addresses of one name
	peer    peerLink            // from the other nodes; only with failsafe mode
	wg      sync.WaitGroup

	containment   string
	hidesChildren bool                     // its children always daemonize
	promotes      bool                     // its children are standbys, and told to lead
	fences        bool                     // the host of a lost leader
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
	lost    bool // it is not started again
	down    chan struct{}
}

// newFleet starts a fleet.
func newFleet(t *testing.T, opt fleetOptions) *fleet {
	t.Helper()
	dir, err := os.MkdirTemp("", "zkelectd-faults-")
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{fleetOptions: opt, t: t, dir: dir, rng: rand.New(rand.NewPCG(opt.seed, 1)), serverLinks: make(map[[2]int][]*faultproxy.Proxy)}
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
	if err := os.Mkdir(f.recordings(), 0o700); err != nil {
		t.Fatal(err)
	}
	f.write(authFile, []byte("faults:secret\n"))
	if f.session, err = f.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.write(hogArgument, make([]byte, 4<<20))
	f.addGroups(opt.groups)
	promoter := f.rng.IntN(4) // every fleet has promoted work
	for i := range 4 {
		n := &node{
			f: f, id: fmt.Sprintf("n%d", i+1), site: fmt.Sprintf("dc%d", i/2+1), prio: 100 - i, down: make(chan struct{}),
			containment: containments[f.rng.IntN(len(containments))], killed: make(map[string]time.Time), starvedPids: make(map[int]bool),
			hidesChildren: f.rng.Float64() < 0.5, byName: f.rng.Float64() < 0.5,
			promotes: (f.rng.Float64() < 0.5 || i == promoter) && opt.fix == nil,
		}
		if opt.groups > 1 && n.containment == "keeper" {
			n.containment = "cgroup" // several groups need it
		}
		if opt.fix != nil {
			opt.fix(n)
		}
		f.nodes = append(f.nodes, n)
		n.setUp()
		n.addProxies()
		for _, g := range f.groups {
			if n.hidesChildren {
				g.write(daemonizes+"-"+n.id, nil)
			}
		}
		t.Logf("%s: %s, containment %s, children daemonize: %t, are promoted: %t, servers by one name: %t", n.id, n.site, n.containment, n.hidesChildren, n.promotes, n.byName)
	}
	if opt.failsafe {
		f.linkPeers()
	}
	for _, n := range f.nodes {
		n.configure()
		n.wg.Go(n.supervise)
	}
	return f
}

// serversName is the name that the servers of a node with byName have.
const serversName = "zookeeper.test"

// addProxies creates the proxies between the node and the servers, and the file with their addresses.
func (n *node) addProxies() {
	port, hosts := 0, "127.0.0.1 localhost\n"
	for i, target := range n.f.ensemble.Addrs() {
		address := "127.0.0.1"
		if n.byName {
			address = fmt.Sprint("127.0.1.", i+1)
		}
		p, err := faultproxy.Listen(fmt.Sprintf("%s:%d", address, port), target)
		if err != nil {
			n.f.t.Fatal(err)
		}
		if n.byName {
			port = p.Port()
		}
		n.proxies, hosts = append(n.proxies, p), hosts+address+" "+serversName+"\n"
	}
	n.f.write(n.id+".hosts", []byte(hosts))
}

// authFile is the name of the file with the identity of all daemons and the campaign.
const authFile = "auth"

// access is how the fleet's znodes are protected.
func (f *fleet) access() zk.Access {
	if !f.failsafe {
		return zk.Access{}
	}
	return zk.Access{ACL: zk.ACLPrivate, Auth: zk.AuthFile{Path: f.file(authFile)}}
}

// open opens a session of the campaign's own.
func (f *fleet) open(ctx context.Context) (*zk.Session, error) {
	return zk.Open(ctx, zk.Options{Servers: f.ensemble.Addrs(), Timeout: 2 * time.Minute, Access: f.access()})
}

// containments are the settings from which the seed chooses; auto would depend on the machine.
var containments = []string{"cgroup", "keeper"}

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
	f.shutDown()
	// Only after all nodes are shut down: the namespaces of one node may use the disk of another.
	for _, n := range f.nodes {
		n.tearDown()
		for _, p := range n.proxies {
			p.Close()
		}
	}
	f.unlinkPeers()
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

// supervise runs until shutDown.
func (n *node) supervise() {
	for {
		log, err := os.OpenFile(n.f.file(n.id+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			n.f.t.Error(err)
			return
		}
		cmd := n.command(log)
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
		n.pause()
	}
}

// command returns the command that starts the node's zkelectd. Its mount namespace hides the addresses of serversName from all others.
func (n *node) command(log *os.File) *exec.Cmd {
	cmd := exec.Command("unshare", "--mount", "sh", "-c",
		`mount --bind "$5" /etc/hosts && echo 0 >"$1"/cgroup.procs && echo 0 >"$2"/cgroup.procs && exec "$3" run --create --config "$4"`,
		"sh", n.memory.Dir, n.cpu.Dir, n.disk.Program, n.f.file(n.id+".yaml"), n.f.file(n.id+".hosts"))
	cmd.Env = append(os.Environ(), record.Variable+"="+n.f.recordings(), "STATE_DIRECTORY="+n.f.file(n.id+".state"))
	cmd.Stdout, cmd.Stderr = log, log
	return cmd
}

// pause waits before a restart, as a service manager does, and while the node is lost.
func (n *node) pause() {
	tick := time.NewTicker(restartPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-n.down:
			return
		}
		if !n.isLost() {
			return
		}
	}
}

func (n *node) isLost() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lost
}

// lose kills all processes of the node at once. It is started again only by the returned function.
func (n *node) lose() (restore func()) {
	set := func(lost bool) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.lost = lost
	}
	set(true)
	n.memory.Kill(sameTime)
	for _, who := range zkelectdProcesses {
		n.killed[who] = time.Now()
	}
	return func() { set(false) }
}

// present returns the nodes that are not lost.
func (f *fleet) present() []*node {
	return slices.DeleteFunc(slices.Clone(f.nodes), (*node).isLost)
}

// shutDown stops all nodes for good, if that has not been done.
func (f *fleet) shutDown() {
	for _, n := range f.nodes {
		n.shutDown()
	}
}

func (n *node) shutDown() {
	n.mu.Lock()
	before := n.stopped
	n.stopped = true
	n.mu.Unlock()
	if before {
		return
	}
	close(n.down)
	p := n.pids()
	for _, pids := range p {
		signal(syscall.SIGCONT, pids...)
	}
	if guards := p[guardProcess]; len(guards) > 0 {
		signal(syscall.SIGTERM, guards...)
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

func (f *fleet) anyNode() *node { return f.nodes[f.rng.IntN(len(f.nodes))] }

// victim returns the leader of a group in most cases, or any node.
func (f *fleet) victim() *node { return f.anyGroup().victim() }

// converge waits until all groups have settled, and returns how long it took.
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

// whyUnsettled returns what is missing for a stable state of all groups; the empty string for a stable state.
func (f *fleet) whyUnsettled(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, g := range f.groups {
		if why := g.whyUnsettled(ctx); why != "" {
			return g.name + ": " + why
		}
	}
	return ""
}
