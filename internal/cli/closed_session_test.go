package cli

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/test/faultproxy"
	"zkelectd/internal/test/zkserver"
	"zkelectd/internal/zk"
)

// closeLeadersSession closes the leader's session as anyone who can reach the client port can: the id is on every ephemeral
// znode and in the answer to cons, and ZooKeeper computes the password from it.
func (f *fleet) closeLeadersSession(servers []string) {
	f.t.Helper()
	_, stat, err := f.session.Get(f.t.Context(), f.paths.Current(), false)
	if err != nil {
		f.t.Fatal(err)
	}
	e := zk.SessionHandle{Servers: servers, Session: stat.Owner, Password: zkserver.SessionPassword(stat.Owner)}
	if err := zk.CloseSession(f.t.Context(), e); err != nil {
		f.t.Fatal(err)
	}
}

const mayRun = "s because the lease of a, which did not release, may still be running"

// A leader that is cut off notices too late that an unauthorized client has closed its session. Its successor waits until the
// lease is over.
func TestAnUnauthorizedClientClosesTheLeadersSession(t *testing.T) {
	t.Parallel()
	server, f, l := ownServer(t)
	f.pair(l, "session_timeout: 10s", "ignore-term")
	child := f.child("a")
	l.SetMode(faultproxy.BlackHole)
	f.closeLeadersSession([]string{server.Addr()})
	f.until("b leads", leads("b"))
	f.waitForChild("b", 1)
	f.waitForDeath(child)
	f.logged("b", "waiting 6.12"+mayRun)
	f.checkInvariants()
}

// The leadership of a killed leader is released before its session is closed, so that the next leader need not wait.
func TestAKilledLeaderIsReleased(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(f *fleet, file string){
		"by the guard": func(f *fleet, _ string) {
			syscall.Kill(f.daemon("a"), syscall.SIGKILL)
			f.logged("a", "closed the dead daemon's session")
			f.logged("a", "leadership=released")
		},
		"by the daemon": func(f *fleet, _ string) {
			daemon := f.daemon("a")
			f.daemons["a"].signal(syscall.SIGKILL)
			f.waitForDeath(daemon)
		},
		"by zkelectd release": func(f *fleet, file string) {
			release := func(want string) bool {
				out, err := exec.Command("zkelectd", "release", "--session-file", file).CombinedOutput()
				return err == nil && strings.Contains(string(out), want)
			}
			f.crash("a")
			f.eventually("the release", func() bool { return release("; leadership is released") }) // the child takes a moment to die
			if !release("nothing to release") {
				t.Error("it releases again")
			}
		},
		"by the next start": func(f *fleet, _ string) {
			f.crash("a")
			f.start("a")
			f.logged("a", "; leadership is released")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			file := filepath.Join(f.dir, "session")
			f.configure("a", "dc1", 2, strings.Replace(longSession, "{", "{session_file: "+file+", ", 1))
			f.start("a")
			f.until("a leads", leads("a"))
			f.configure("b", "dc1", 1, longSession+"policy: {failback: manual}\n")
			f.start("b")
			f.until("b has joined", func(g status.Group) bool { return len(g.Members) == 2 && leads("a")(g) })
			f.waitForWork("a")
			before := f.snapshot()
			fail(f, file)
			f.until("there is a leader in another term", func(g status.Group) bool {
				return g.State == string(cluster.CurrentReady) && g.Term > before.Elected.Record.Term
			})
			after := f.snapshot()
			if after.Fence.Record.Wait != "" {
				t.Errorf("it has waited %s", after.Fence.Record.Wait)
			}
			// A daemon that has lost its guard gives up.
			if e := after.Elected.Record; name != "by the daemon" && (e.Cause != cluster.CauseFailure || len(e.Exclusions) > 0) {
				t.Errorf("a crash counts as %s (%s), with the strikes %+v", e.Cause, e.Reason, e.Exclusions)
			}
			f.checkInvariants()
		})
	}
}

// A lost host releases nothing: explain and history show why its successor waits.
func TestTheLeaseWaitAfterALostHostIsExplained(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b")
	f.waitForWork("a")
	f.crashUnwatched("a")
	f.eventually("explain has the reason", func() bool {
		out, err := f.run("explain")
		return err == nil && strings.Contains(out, "\nWaiting  2.45"+mayRun+"\n")
	})
	f.until("b leads", leads("b"))
	f.eventually("history has the reason", func() bool {
		out, err := f.run("history")
		return err == nil && strings.Contains(out, "[waited 2.45"+mayRun+"]")
	})
	f.checkInvariants()
}
