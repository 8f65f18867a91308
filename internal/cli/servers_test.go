package cli

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

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

// A reload replaces the servers without a new term: those that prove to have the group, and nothing of a list with one of another ensemble.
// The guard closes the session of a dead daemon there, too.
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
	f.reloadServers("a", statusRefused, "not all are of this group's ensemble, so the servers remain "+own[0]+": "+shared.Addr()+" has no znode "+f.paths.Root,
		own[1], shared.Addr())
	f.reloadServers("a", statusRefused, "none of the new servers answers, so the servers remain "+own[0]+": "+nobody+": dial tcp", nobody)
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
