package cli

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/test/zkserver"
)

// reload runs the command reload with other servers in the file of a node.
func (f *fleet) reloadServers(id string, code int, want string, servers ...string) {
	f.t.Helper()
	text := read(f.file(id))
	_, rest, _ := strings.Cut(text, "servers: [")
	old, _, _ := strings.Cut(rest, "]")
	put(f.t, f.file(id), strings.Replace(text, "servers: ["+old+"]", "servers: ["+strings.Join(servers, ", ")+"]", 1))
	cmd := exec.Command("zkelectd", "reload", "--config", f.file(id), "--timeout", "60s")
	cmd.Env = append(os.Environ(), f.env...)
	if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != code || !strings.Contains(string(out), want) {
		f.t.Errorf("%d, want %d and %q:\n%s", cmd.ProcessState.ExitCode(), code, want, out)
	}
}

// A reload replaces the servers without a new term: those that prove to have the group, and nothing of a list with
// one of another ensemble. The guard closes the session of a dead daemon there, too.
func TestServersChangeByReload(t *testing.T) {
	t.Parallel()
	e, err := zkserver.StartEnsemble(t.Context(), 3, zkserver.Options{Tick: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Stop() })
	const nobody = "127.0.0.1:1"
	own := e.Addrs()
	f := newFleet(t, own...)
	f.servers = own[:1]
	term := f.startLeader("a", "").Term
	good := read(f.file("a"))
	put(t, f.file("a"), strings.Replace(good, "priority: 100", "priority: 7", 1))
	f.reloadServers("a", statusRefused, "not all are of this group's ensemble, so the servers remain "+own[0]+": "+shared.Addr()+" does not know a session of "+own[0],
		own[1], shared.Addr())
	f.reloadServers("a", statusRefused, "none of the new servers answers, so the servers remain "+own[0]+": "+nobody+": dial tcp", nobody)
	f.reloadServers("a", statusRefused, "none of the new servers answers, so the servers remain "+own[0]+": "+nobody+": dial tcp", own[0], nobody)
	f.reloadServers("a", statusRefused, "only 1 of 2 servers answer, so the servers remain "+own[0], own[1], nobody)
	if g := f.until("a has reloaded", leads("a")); g.Members[0].Priority != 100 || g.Term != term {
		t.Errorf("after refused reloads:\n%s", g.Table())
	}
	put(t, f.file("a"), good)
	f.reloadServers("a", 0, "applied: zookeeper.servers", own[1], own[2], nobody)
	e.Servers[0].Kill()
	f.logged("a", "some of the new servers do not answer")
	f.configure("b", "dc1", 50, "")
	f.servers = own[1:]
	f.configure("b", "dc1", 50, "")
	f.start("b")
	if g := f.until("b has joined", func(g status.Group) bool { return len(g.Members) == 2 && leads("a")(g) }); g.Term != term {
		t.Errorf("term %d after %d", g.Term, term)
	}
	syscall.Kill(f.daemon("a"), syscall.SIGKILL)
	f.logged("a", "closed the dead daemon's session")
	f.until("there is a new term", func(g status.Group) bool { return g.Term > term && g.State == "READY" })
	f.checkInvariants()
}

// load writes without a pause until stop, which returns how many writes were confirmed, and the longest time between
// two of them.
func (f *fleet) load() (stop func() (writes int, longest time.Duration)) {
	f.write(cluster.Op{Kind: cluster.OpCreate, Path: f.paths.Root + "-load", Data: []byte{}})
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan struct{})
	writes, longest := 0, time.Duration(0)
	go func() {
		defer close(done)
		for last := time.Now(); ctx.Err() == nil; {
			_, err := f.session.Do(ctx, cluster.Op{Kind: cluster.OpSet, Path: f.paths.Root + "-load", Data: make([]byte, 1000), Version: cluster.AnyVersion})
			if err == nil {
				writes, longest, last = writes+1, max(longest, time.Since(last)), time.Now()
			}
		}
	}()
	return func() (int, time.Duration) {
		cancel()
		<-done
		return writes, longest
	}
}

// All servers of an ensemble are replaced under load, one by one. A group that follows its ensemble, and one that is
// reloaded, keep their leaders, without a strike. Then the daemons of the first one die, and their guard closes their
// session at the new servers.
func TestAllServersAreReplaced(t *testing.T) {
	t.Parallel()
	e, err := zkserver.StartDynamic(t.Context(), 3, zkserver.Options{Tick: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Stop() })
	follows, reloads := newFleet(t, e.Addrs()...), newFleet(t, e.Addrs()...)
	terms := make(map[*fleet]int64)
	ids := []string{"a", "b"}
	for f, follow := range map[*fleet]bool{follows: true, reloads: false} {
		for i, id := range ids {
			f.configure(id, "dc1", 100-i, fmt.Sprintf("zookeeper: {session_timeout: 10s, follow: %t}\n", follow))
			f.startWith([]string{"STATE_DIRECTORY=" + t.TempDir()}, id)
			g := f.until(id+" has joined", func(g status.Group) bool { return len(g.Members) == i+1 && leads("a")(g) })
			terms[f] = g.Term
		}
	}
	stop, began := reloads.load(), time.Now()
	for _, old := range slices.Clone(e.Servers) {
		_, err := e.Replace(t.Context(), old, func() error {
			added := e.Servers[len(e.Servers)-1].Addr()
			for _, f := range []*fleet{follows, reloads} {
				f.session.SetServers(e.Addrs())
			}
			for _, id := range ids {
				reloads.reloadServers(id, 0, "applied: zookeeper.servers", e.Addrs()[1:]...)
				follows.logged(id, added)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for f, term := range terms {
			if g := f.until("a leads", func(g status.Group) bool { return len(g.Members) == 2 && leads("a")(g) }); g.Term != term || len(g.Exclusions) > 0 {
				t.Errorf("after %s: term %d after %d\n%s", old.Addr(), g.Term, term, g.Table())
			}
		}
	}
	writes, longest := stop()
	t.Logf("3 of 3 servers replaced within %s, with %d writes, %s apart at most: 2 groups, 0 of 2 leaderships lost", time.Since(began).Round(time.Millisecond), writes,
		longest.Round(time.Millisecond))
	for _, f := range []*fleet{follows, reloads} {
		if tenures := f.checkInvariants(); len(tenures) != 1 {
			t.Errorf("the work was started %d times", len(tenures))
		}
	}
	syscall.Kill(follows.daemon("a"), syscall.SIGKILL)
	follows.logged("a", "closed the dead daemon's session")
	follows.until("a is back, by the servers that it has recorded", func(g status.Group) bool { return len(g.Members) == 2 && g.Term > terms[follows] })
	follows.checkInvariants()
}
