package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
	"zkelectd/internal/test/process"
	"zkelectd/internal/zk"
)

// fleet is the group of real daemons of a test.
type fleet struct {
	t       *testing.T
	servers []string
	dir     string
	paths   cluster.Paths
	session *zk.Session
	daemons map[string]*process.Process
	env     []string // of daemons and commands, in addition to that of the test
}

var groups atomic.Int32

// testTimeout is how long a condition may take. Only a failure takes so long, unless the machine is busy.
const testTimeout = 90 * time.Second

func newFleet(t *testing.T, servers ...string) *fleet {
	t.Helper()
	return newFleetAt(t, fmt.Sprintf("/groups/g%d", groups.Add(1)), servers...)
}

// newFleetAt is newFleet for a group with that root.
func newFleetAt(t *testing.T, root string, servers ...string) *fleet {
	t.Helper()
	f := openFleet(t, root, servers...)
	if err := store.Init(t.Context(), f.session, f.paths, "the test"); err != nil {
		t.Fatal(err)
	}
	return f
}

// openFleet returns a fleet whose group is not initialized.
func openFleet(t *testing.T, root string, servers ...string) *fleet {
	t.Helper()
	if len(servers) == 0 {
		servers = []string{shared.Addr()}
	}
	f := &fleet{
		t: t, servers: servers, dir: t.TempDir(), daemons: make(map[string]*process.Process),
		paths: cluster.Paths{Root: root},
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	var err error
	if f.session, err = zk.Open(ctx, zk.Options{Servers: servers, Timeout: 60 * time.Second}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	return f
}

func (f *fleet) close() {
	for _, p := range f.daemons {
		p.Signal(syscall.SIGCONT)
		beside := process.Children(p.Process.Pid)
		p.Signal(syscall.SIGKILL)
		<-p.Done
		for _, pid := range beside { // they may still write files
			syscall.Kill(pid, syscall.SIGKILL)
			for limit := time.After(testTimeout); running(strconv.Itoa(pid)); {
				select {
				case <-time.After(5 * time.Millisecond):
					continue
				case <-limit:
					f.t.Errorf("process %d does not end", pid)
				}
				break
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	f.session.Close(ctx)
	if f.t.Failed() {
		for id, p := range f.daemons {
			f.t.Logf("--- %s\n%s", id, p.Output())
		}
	}
}

func (f *fleet) ledgerFile() string    { return filepath.Join(f.dir, "ledger") }
func (f *fleet) file(id string) string { return filepath.Join(f.dir, id+".yaml") }

// configure writes the configuration file of a node; extra is YAML with further sections. Unless it sets failback, a better member
// takes over at once, so that a test knows who leads.
func (f *fleet) configure(id, site string, priority int, extra string) {
	f.t.Helper()
	text := fmt.Sprintf("node: {id: %s, site: %s, priority: %d}\nzookeeper: {servers: [%s], root: %s%s}\n",
		id, site, priority, strings.Join(f.servers, ", "), f.paths.Root, ", session_timeout: 4s")
	if strings.Contains(extra, "zookeeper:") {
		text = fmt.Sprintf("node: {id: %s, site: %s, priority: %d}\n", id, site, priority)
		extra = strings.ReplaceAll(extra, "zookeeper: {", fmt.Sprintf("zookeeper: {servers: [%s], root: %s, ", strings.Join(f.servers, ", "), f.paths.Root))
	}
	if !strings.Contains(extra, "child:") {
		extra += fmt.Sprintf("\nchild: {command: [ledger-child], env: {LEDGER: %s}, stop_timeout: 400ms}\n", f.ledgerFile())
	}
	extra = strings.ReplaceAll(extra, "LEDGERFILE", f.ledgerFile())
	if !strings.Contains(extra, "election: {") {
		extra += "\nelection: {}\n"
	}
	extra = strings.Replace(extra, "election: {", "election: {settle: 0s, ", 1)
	if !strings.Contains(extra, "policy: {") {
		extra += "policy: {}\n"
	}
	if !strings.Contains(extra, "failback: ") && !strings.Contains(extra, "source: group") {
		extra = strings.Replace(extra, "policy: {", "policy: {failback: immediate, ", 1)
	}
	put(f.t, f.file(id), text+extra)
}

// start starts a daemon with the configuration that configure wrote. It may create the group.
func (f *fleet) start(id string, args ...string) *process.Process {
	f.t.Helper()
	return f.startWith(nil, id, args...)
}

// startWith is start with additional environment variables.
func (f *fleet) startWith(env []string, id string, args ...string) *process.Process {
	f.t.Helper()
	if len(args) == 0 {
		args = []string{"--config", f.file(id)}
	} else if !slices.Contains(args, "--") && !slices.Contains(args, "--config") {
		args = append(args, "--no-child")
	}
	cmd := exec.Command("zkelectd", append([]string{"run", "--create"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	return f.startCommand(id, cmd)
}

// startCommand starts a command that becomes a daemon.
func (f *fleet) startCommand(id string, cmd *exec.Cmd) *process.Process {
	f.t.Helper()
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, f.env...)
	f.daemons[id] = process.Start(f.t, cmd, filepath.Join(f.dir, id+".log"))
	return f.daemons[id]
}

// startLeader configures and starts a daemon, and waits until it leads.
func (f *fleet) startLeader(id, config string) status.Group {
	f.t.Helper()
	f.configure(id, "dc1", 100, config)
	f.start(id)
	return f.until(id+" leads", leads(id))
}

// join configures and starts daemons at site dc1, each with a lower priority than the one before. They register in this order, and the
// first one leads.
func (f *fleet) join(ids ...string) {
	f.t.Helper()
	f.joinWith("election: {exclusion: 1s}\n", ids...)
}

// joinWith is join with further settings, in which NODE stands for the node.
func (f *fleet) joinWith(settings string, ids ...string) {
	f.t.Helper()
	for i, id := range ids {
		f.configure(id, "dc1", 100-i, strings.ReplaceAll(settings, "NODE", id))
		f.start(id)
		f.until(id+" has joined", func(g status.Group) bool { return len(g.Members) == i+1 && leads(ids[0])(g) })
	}
}

// daemon returns the pid of a node's daemon.
func (f *fleet) daemon(id string) int { return f.guardChild(id, daemonCommandName) }

// running reports whether a process exists and has not ended.
func running(pid string) bool {
	stat := read("/proc/" + pid + "/stat")
	return stat != "" && !strings.Contains(stat, ") Z ")
}

// guardChild returns the pid of the guard's child that has the argument.
func (f *fleet) guardChild(id, argument string) int {
	f.t.Helper()
	var pid int
	f.eventually("the "+argument+" of "+id, func() bool {
		for _, pid = range process.Children(f.daemons[id].Process.Pid) {
			if args := process.CommandLine(pid); len(args) > 1 && args[1] == argument {
				return true
			}
		}
		return false
	})
	return pid
}

// crash kills all processes of a zkelectd, as if its host were lost: nothing is left to close its session.
func (f *fleet) crash(id string) {
	f.t.Helper()
	daemon := f.daemon(id)
	f.daemons[id].Signal(syscall.SIGSTOP)
	syscall.Kill(daemon, syscall.SIGKILL)
	f.daemons[id].Signal(syscall.SIGKILL)
	f.exit(id)
}

// crashUnwatched is crash for a leader whose lease nobody can watch: it is replaced only when its session has ended, and its successor waits.
func (f *fleet) crashUnwatched(id string) {
	f.t.Helper()
	f.crash(id)
	f.write(cluster.Op{Kind: cluster.OpDelete, Path: f.snapshot().Fence.Record.LeaseZnode, Version: cluster.AnyVersion})
}

// exit waits for a zkelectd to exit, and returns the exit status.
func (f *fleet) exit(id string) int {
	f.t.Helper()
	return f.daemons[id].Exit(f.t, testTimeout)
}

// stop stops a daemon, whose exit status must be 0.
func (f *fleet) stop(id string) {
	f.t.Helper()
	f.daemons[id].Signal(syscall.SIGTERM)
	if code := f.exit(id); code != 0 {
		f.t.Errorf("%s: exit status %d\n%s", id, code, f.daemons[id].Output())
	}
}

// until waits until the group meets a condition, and returns its status.
func (f *fleet) until(what string, ok func(status.Group) bool) status.Group {
	f.t.Helper()
	var g status.Group
	f.eventually(what, func() bool {
		ctx, cancel := context.WithTimeout(f.t.Context(), 5*time.Second)
		defer cancel()
		snap, err := store.ReadAll(ctx, f.session, f.paths, false)
		g = status.Of(f.groupName(), f.paths.Root, snap)
		return err == nil && ok(g)
	}, func() string { return g.Table() })
	return g
}

func (f *fleet) eventually(what string, ok func() bool, state ...func() string) {
	f.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(testTimeout)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			for _, s := range state {
				f.t.Log(s())
			}
			f.t.Fatalf("did not happen: %s", what)
		}
	}
}

func leads(id string) func(status.Group) bool {
	return func(g status.Group) bool {
		return g.State == string(cluster.CurrentReady) && g.Leader == id && g.Next == ""
	}
}

func (f *fleet) logged(id, text string) {
	f.t.Helper()
	f.eventually(fmt.Sprintf("%s logs %q", id, text), func() bool { return strings.Contains(f.daemons[id].Output(), text) })
}

// waitForChild waits until the child of a node has started a number of times.
func (f *fleet) waitForChild(id string, times int) {
	f.t.Helper()
	f.eventually(fmt.Sprintf("child %d of %s", times, id), func() bool {
		n := 0
		for _, t := range ledger(f.t, f.ledgerFile()) {
			if t.node == id {
				n++
			}
		}
		return n >= times
	})
}

// write changes znodes directly, as an operator with too many rights can.
func (f *fleet) write(ops ...cluster.Op) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), testTimeout)
	defer cancel()
	if _, err := f.session.Do(ctx, ops...); err != nil && !errors.Is(err, cluster.ErrNoNode) {
		f.t.Fatal(err)
	}
}

// checkPanics checks that no daemon panicked.
func (f *fleet) checkPanics() {
	f.t.Helper()
	for id, p := range f.daemons {
		if out := p.Output(); strings.Contains(out, "panic:") {
			f.t.Errorf("%s panicked:\n%s", id, out[max(0, bytes.Index([]byte(out), []byte("panic:"))):])
		}
	}
}

// checkInvariants checks that no daemon panicked, and S1. It returns the tenures.
func (f *fleet) checkInvariants() []tenure {
	f.t.Helper()
	f.checkPanics()
	all := ledger(f.t, f.ledgerFile())
	checkNoOverlap(f.t, all)
	return all
}
