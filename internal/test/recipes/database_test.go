package recipes

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/test/faultproxy"
	"zkelectd/internal/test/zkserver"
)

// databases are two hosts, n1 and n2, with a database server that is the primary on the leader. Each host reaches ZooKeeper through
// its own proxy, so that a test can cut it off while its clients and the other host still reach it.
type databases struct {
	*fleet
	root, user string
	scripts    string // the directory with the recipe's scripts
	hosts      map[string]*databaseHost
	probes     *sqlLog // writes to each server that do not wait for the other one: who accepts writes at all
	writes     *sqlLog // writes of a client that follows the primary: what is confirmed must not be lost
}

type databaseHost struct {
	id, peer string
	port     int
	config   string
	env      string // the path of the file that the scripts read
	proxy    *faultproxy.Proxy
}

// newDatabases copies the recipe's scripts, and creates a directory for each host that belongs to user.
func newDatabases(t *testing.T, recipe, user string) *databases {
	t.Helper()
	d := &databases{fleet: newFleet(t, zkserver.Options{}), root: "/" + recipe, user: user,
		hosts: make(map[string]*databaseHost), probes: &sqlLog{}, writes: &sqlLog{}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("hosts accepted writes in the order %v", d.probes.primaries())
		}
	})
	d.scripts = filepath.Join(d.dir, "scripts")
	d.run("install", "-d", d.scripts)
	d.run("install", binary, d.scripts) // whose directory only this user can read
	for _, file := range filesOf(t, recipe) {
		d.write("scripts/"+filepath.Base(file), read(t, file))
	}
	ports, err := zkserver.FreePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range []string{"n1", "n2"} {
		h := &databaseHost{id: id, peer: []string{"n2", "n1"}[i], port: ports[i]}
		if h.proxy, err = faultproxy.New(d.zk.Addr()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(h.proxy.Close)
		d.hosts[id] = h
		d.run("install", "-d", "-o", user, "-m", "0700", d.file(id), d.file(id+"/state"))
	}
	return d
}

// asUser returns the command that runs a program as the user of the database.
func (d *databases) asUser(argv ...string) *exec.Cmd {
	prefix := []string{"--reuid", d.user, "--regid", d.user, "--init-groups", "env", "HOME=" + d.dir,
		"PATH=" + d.scripts + ":" + os.Getenv("PATH")}
	cmd := exec.Command("setpriv", append(prefix, argv...)...)
	cmd.Dir = d.dir
	return cmd
}

func (d *databases) state(id, name string) string { return d.file(id + "/state/" + name) }

// startHost starts the replica's service and zkelectd.
func (d *databases) startHost(id string) {
	d.t.Helper()
	h := d.hosts[id]
	d.startReplica(id)
	cmd := d.asUser(d.scripts+"/zkelectd", "run", "--create", "--config", h.config)
	cmd.Dir = d.file(id)
	d.start(id, cmd)
}

func (d *databases) startReplica(id string) {
	d.t.Helper()
	cmd := d.asUser(d.scripts+"/replica", d.hosts[id].env)
	cmd.Dir = d.file(id)
	d.start(id+"-replica", cmd)
}

// loseHost ends everything of a host at the same moment: first all processes are stopped, so that none acts on the end of another.
func (d *databases) loseHost(id string) {
	d.t.Helper()
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		for _, pid := range d.processesOf(id) {
			syscall.Kill(pid, sig)
		}
	}
	d.eventually("the processes of "+id+" are gone", func() bool { return len(d.processesOf(id)) == 0 })
	<-d.processes[id].done
	<-d.processes[id+"-replica"].done
}

// processesOf returns the processes of a host, which work in its directory.
func (d *databases) processesOf(id string) (pids []int) {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, link := range links {
		dir, _ := os.Readlink(link)
		if pid, _ := strconv.Atoi(strings.Split(link, "/")[2]); strings.HasPrefix(dir+"/", d.file(id)+"/") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// move moves leadership, as soon as the target is healthy.
func (d *databases) move(id string, flags ...string) {
	d.t.Helper()
	d.eventually("a move to "+id+" is accepted", func() bool {
		_, status := d.zkelectd(append([]string{"move", id, "--zk", d.zk.Addr(), "--root", d.root}, flags...)...)
		return status == 0
	})
}

// primary waits until a host leads and a client's write to it has been confirmed, which means that the other host is a standby again.
func (d *databases) primary(id string) {
	d.t.Helper()
	start := time.Now()
	d.leads(d.root, id)
	led := time.Since(start)
	d.eventually("writes are confirmed on "+id, func() bool { return d.writes.last(start) == id })
	peer := d.hosts[d.hosts[id].peer]
	d.eventually(peer.id+" is healthy", func() bool { return d.asUser(d.scripts+"/healthy", peer.env).Run() == nil })
	d.move(peer.id, "--dry-run") // the elector knows that
	d.t.Logf("%s leads after %s, and writes are confirmed after %s", id, led.Round(time.Millisecond), time.Since(start).Round(time.Millisecond))
}

// sqlLog records which host accepted which writes.
type sqlLog struct {
	mu     sync.Mutex
	writes []sqlWrite
}

type sqlWrite struct {
	host  string
	id    int
	acked time.Time
}

func (l *sqlLog) add(host string, id int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes = append(l.writes, sqlWrite{host, id, time.Now()})
}

// last returns the host of the last write that was accepted since a time.
func (l *sqlLog) last(since time.Time) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.writes); n > 0 && l.writes[n-1].acked.After(since) {
		return l.writes[n-1].host
	}
	return ""
}

// order returns the hosts that accepted writes, in order.
func (l *sqlLog) order() (order []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.writes {
		if len(order) == 0 || order[len(order)-1] != w.host {
			order = append(order, w.host)
		}
	}
	return order
}

// primaries returns the hosts that accepted writes, in order. A host is there twice if it accepted one after another host had. Two
// primaries at once would alternate without end, so it stops after some changes.
func (l *sqlLog) primaries() (order []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.writes {
		if len(order) == 0 || order[len(order)-1] != w.host && len(order) < 20 {
			order = append(order, w.host)
		}
	}
	return order
}

func (l *sqlLog) ids() (ids []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.writes {
		ids = append(ids, w.id)
	}
	return ids
}

// sqlWriter writes one row after another with a database's client program, which reads statements from its standard input. The
// function connect returns the command for the n-th connection; statement returns an INSERT that prints the row's id and the server's host.
type sqlWriter struct {
	log       *sqlLog
	first     int
	pause     time.Duration // between two sessions; 0 for 5ms
	connect   func(ctx context.Context, n int) *exec.Cmd
	statement func(id int) string
}

// start runs the writer until the end of the test.
func (w *sqlWriter) start(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		id := w.first
		for n := 0; ctx.Err() == nil; n++ {
			id = w.session(w.connect(ctx, n), id)
			select {
			case <-ctx.Done():
			case <-time.After(max(w.pause, 5*time.Millisecond)):
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// session writes until a write fails, and returns the next id. A write that failed may have been done or not, so its id is not used again.
func (w *sqlWriter) session(cmd *exec.Cmd, id int) int {
	in, err := cmd.StdinPipe()
	if err != nil {
		return id
	}
	out, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		return id
	}
	defer cmd.Wait()
	defer in.Close()
	answers := bufio.NewScanner(out)
	for ; ; id++ {
		if _, err := io.WriteString(in, w.statement(id)+"\n"); err != nil || !answers.Scan() {
			return id + 1
		}
		if fields := strings.Fields(answers.Text()); len(fields) == 2 && fields[0] == strconv.Itoa(id) {
			w.log.add(fields[1], id)
		}
	}
}

// failovers loses the leader in several ways. server returns the process id of a host's server; force are the flags of a move.
func (d *databases) failovers(server func(id string) int, force ...string) {
	d.t.Helper()
	d.primary("n1")

	d.t.Log("a move")
	d.move("n2", force...)
	d.primary("n2")

	d.t.Log("kill -9 of the daemon")
	d.signal(syscall.SIGKILL, "n2", "daemon")
	d.primary("n1")

	d.t.Log("kill -9 of the server: it is restarted in place")
	before := server("n1")
	syscall.Kill(before, syscall.SIGKILL)
	d.eventually("a new server", func() bool { pid := server("n1"); return pid != 0 && pid != before })
	d.primary("n1")

	d.t.Log("the leader is cut off from ZooKeeper; clients and the standby still reach its server")
	d.hosts["n1"].proxy.SetMode(faultproxy.BlackHole)
	d.leads(d.root, "n2")
	d.hosts["n1"].proxy.SetMode(faultproxy.Pass)
	d.primary("n2")

	d.t.Log("the leader's host is lost: nothing is confirmed until there is a standby again")
	d.loseHost("n2")
	confirmed := len(d.writes.ids())
	d.leads(d.root, "n1")
	d.eventually("n1 accepts writes", func() bool {
		order := d.probes.primaries()
		return order[len(order)-1] == "n1"
	})
	if now := len(d.writes.ids()); now != confirmed {
		d.t.Errorf("%d writes were confirmed without a standby", now-confirmed)
	}
	d.startHost("n2")
	d.primary("n1")

	d.t.Log("a former primary that has not followed refuses")
	d.stop("n1-replica")
	d.signal(syscall.SIGKILL, "n1", "daemon")
	d.leads(d.root, "n2")
	d.move("n1", "--force")
	d.logged("n1", "another host may have led since")
	d.run("touch", d.state("n2", "accept")) // neither host can know that the other one has not led
	d.move("n2", "--force")
	d.startReplica("n1")
	d.leads(d.root, "n2")
	d.zkelectd("clear-strikes", "--all", "--zk", d.zk.Addr(), "--root", d.root)
	d.primary("n2")

	d.t.Log("a takeover that fails: the former primary continues")
	d.run("mkdir", d.state("n1", "term.new"))
	d.move("n1", "--force")
	d.logged("n1", "term.new")
	d.leads(d.root, "n2")
	start := time.Now()
	d.eventually("writes are confirmed on n2", func() bool { return d.writes.last(start) == "n2" })
}

// check compares the hosts that accepted writes with the leaders of failovers, and the rows of the last primary with the confirmed
// writes.
func (d *databases) check(rows string) {
	d.t.Helper()
	leaders := []string{"n1", "n2", "n1", "n2", "n1", "n2"}
	if got := d.probes.primaries(); !slices.Equal(got, leaders) {
		d.t.Errorf("hosts accepted writes in the order %v, want %v", got, leaders)
	}
	have := make(map[string]bool)
	for id := range strings.FieldsSeq(rows) {
		have[id] = true
	}
	lost := 0
	for _, id := range d.writes.ids() {
		if !have[strconv.Itoa(id)] {
			lost++
		}
	}
	if lost > 0 {
		d.t.Errorf("%d of %d confirmed writes are lost", lost, len(d.writes.ids()))
	}
	d.t.Logf("%d confirmed writes, %d lost; %d probes accepted, by %v", len(d.writes.ids()), lost, len(d.probes.ids()), d.probes.primaries())
	d.logGaps()
	for id := range d.hosts {
		d.stop(id)
		d.stop(id + "-replica")
	}
}

// logGaps logs for how long no server accepted writes around each change of the primary.
func (d *databases) logGaps() {
	d.probes.mu.Lock()
	defer d.probes.mu.Unlock()
	for i, w := range d.probes.writes {
		if i > 0 && d.probes.writes[i-1].host != w.host {
			d.t.Logf("%s -> %s: no server accepted writes for %s", d.probes.writes[i-1].host, w.host,
				w.acked.Sub(d.probes.writes[i-1].acked).Round(time.Millisecond))
		}
	}
}

// configure writes the recipe's zkelectd.yaml for a host, and the file for the scripts.
func (d *databases) configure(id, recipe, env string) {
	d.t.Helper()
	h := d.hosts[id]
	h.env = d.write(id+".env", env)
	h.config = d.write(id+".yaml", d.example(recipe+"/zkelectd.yaml", "{id: n1}", "{id: "+id+"}",
		`"zk1:2181", "zk2:2181", "zk3:2181"`, fmt.Sprintf("%q", h.proxy.Addr()),
		"  auth: {file: /etc/zkelectd/zookeeper.auth}\n  acl: private\n", "", "/usr/local/lib/zkelectd-"+recipe, d.scripts, "/etc/zkelectd/"+recipe+".env", h.env))
}
