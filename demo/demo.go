package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
	"zkelectd/internal/test/zkserver"
	"zkelectd/internal/work/workenv"
	"zkelectd/internal/zk"
)

type options struct {
	// zkelectd and child are the programs to run.
	zkelectd, child string
	// once ends the demo after the tour; otherwise it shows the fleet until the context ends.
	once bool
	// out receives the text of the tour.
	out io.Writer
}

const root = "/demo"

// node is a member of the fleet.
type node struct {
	id, site string
	priority int
}

var nodes = []node{{"n1", "dc1", 100}, {"n2", "dc1", 90}, {"n3", "dc2", 100}, {"n4", "dc2", 90}}

// fleet is the server and the daemons that the demo has started.
type fleet struct {
	opt     options
	dir     string
	server  *zkserver.Server
	session *zk.Session
	paths   cluster.Paths
	daemons map[string]*process
	sites   map[string]int // policy.sites in the configuration files
	ports   map[string]int // HTTP ports by node
	token   string         // for requests over HTTP
	view    status.Group   // of the group when a step of the tour was done
}

// runTour runs the demo. It leaves no process and no file behind. The error names the step of the tour that failed.
func runTour(ctx context.Context, opt options) (err error) {
	f := &fleet{
		opt: opt, paths: cluster.Paths{Root: root}, daemons: make(map[string]*process),
		sites: map[string]int{"dc1": 200, "dc2": 100}, token: rand.Text(),
	}
	if f.dir, err = os.MkdirTemp("", "zkelectd-demo-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	if err := f.open(); err != nil {
		return err
	}
	f.say("starting a ZooKeeper server")
	if f.server, err = zkserver.Start(ctx, zkserver.Options{Dir: filepath.Join(f.dir, "zookeeper")}); err != nil {
		return err
	}
	f.session, err = zk.Open(ctx, zk.Options{Servers: []string{f.server.Addr()}, Timeout: 10 * time.Second})
	if err != nil {
		return err
	}
	f.say("initializing the new group, as 'zkelectd init' does: it has no leader, so its first leader need not wait")
	if err := store.Init(ctx, f.session, f.paths, "the demo"); err != nil {
		return err
	}
	if err := f.tour(ctx); err != nil {
		return err
	}
	if opt.once {
		return nil
	}
	return f.show(ctx)
}

func (f *fleet) say(format string, args ...any) { fmt.Fprintf(f.opt.out, format+"\n", args...) }

// close stops all daemons and the server, and removes the directory.
func (f *fleet) close() error {
	for _, p := range f.daemons {
		p.terminate()
	}
	for _, p := range f.daemons {
		p.wait(5 * time.Second)
	}
	if f.session != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		f.session.Close(ctx) // an error does not matter: the server is stopped next
	}
	var err error
	if f.server != nil {
		err = f.server.Stop()
	}
	return errors.Join(err, os.RemoveAll(f.dir))
}

// open finds ports for the daemons' HTTP servers, and writes the token for requests.
func (f *fleet) open() error {
	ports, err := zkserver.FreePorts(len(nodes))
	if err != nil {
		return err
	}
	f.ports = make(map[string]int)
	for i, n := range nodes {
		f.ports[n.id] = ports[i]
	}
	return os.WriteFile(f.tokens(), []byte("demo:"+f.token+"\n"), 0o600)
}

func (f *fleet) tokens() string { return filepath.Join(f.dir, "tokens") }

// configure writes a node's configuration file. The tour shows how leadership moves, so it does not stay where it is,
// as by default.
func (f *fleet) configure(n node) error {
	text := fmt.Sprintf(`node: {id: %s, site: %s, priority: %d}
zookeeper: {servers: ["%s"], root: %s, session_timeout: 4s}
election: {exclusion: 5s}
hooks: {timeout: 1s}
policy: {sites: {dc1: %d, dc2: %d}, failback: immediate}
http: {listen: "127.0.0.1:%d", token_file: "%s"}
child:
  command: ["%s", child, --dir, "%s"]
  ready: {notify: true, timeout: 2s}
  stop_timeout: 1s
`, n.id, n.site, n.priority, f.server.Addr(), root, f.sites["dc1"], f.sites["dc2"], f.ports[n.id], f.tokens(), f.opt.child, f.dir)
	return os.WriteFile(f.file(n), []byte(text), 0o600)
}

func (f *fleet) file(n node) string { return filepath.Join(f.dir, n.id+".yaml") }

// start starts a node's daemon with the file that configure writes; its log goes to a file.
func (f *fleet) start(n node, configure func(node) error) error {
	if err := configure(n); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(f.dir, n.id+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p, err := startProcess([]string{f.opt.zkelectd, "run", "--create", "--config", f.file(n)},
		workenv.Clean(os.Environ()), log)
	if err != nil {
		return err
	}
	f.daemons[n.id] = p
	return nil
}

// logs returns the last lines of a node's log, for a step that failed.
func (f *fleet) logs(n node) string {
	data, err := os.ReadFile(filepath.Join(f.dir, n.id+".log"))
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}
