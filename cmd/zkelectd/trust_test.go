package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
	"zkelectd/internal/faultproxy"
	"zkelectd/internal/status"
	"zkelectd/internal/zkserver"
)

// intrude closes the leader's session as a stranger who reaches the client port can: the id is on every ephemeral, and in the
// answer to cons, and ZooKeeper computes the password from it.
func (f *fleet) intrude(servers []string) {
	f.t.Helper()
	_, stat, err := f.session.Get(f.t.Context(), f.paths.Current(), false)
	if err != nil {
		f.t.Fatal(err)
	}
	e := zkstore.SessionHandle{Servers: servers, Session: stat.Owner, Password: zkserver.SessionPassword(stat.Owner)}
	if err := zkstore.CloseSession(f.t.Context(), e); err != nil {
		f.t.Fatal(err)
	}
}

const sessionEnd = "s because the end of a's session does not prove that its work ended"

// The leader, which is cut off for the moment, learns too late that a stranger has closed its session. Its successor waits
// until the lease is over; only where the end of a session is trusted, both work at once, which docs/safety.md warns of.
func TestAStrangerWhoClosesTheLeadersSession(t *testing.T) {
	t.Parallel()
	for _, trust := range []bool{false, true} {
		t.Run(fmt.Sprintf("trust_session_end %v", trust), func(t *testing.T) {
			t.Parallel()
			server, f, l := ownServer(t)
			f.pair(l, fmt.Sprintf("session_timeout: 10s}\nelection: {trust_session_end: %v", trust), "ignore-term")
			child := f.child("a")
			l.SetMode(faultproxy.BlackHole)
			f.intrude([]string{server.Addr()})
			f.until("b leads", leads("b"))
			f.working("b", 1)
			f.gone(child)
			if waited := strings.Contains(f.daemons["b"].output(), "waiting 6.12"+sessionEnd); waited == trust {
				t.Errorf("it waits: %v", waited)
			}
			if trust {
				if all := ledger(t, f.ledgerFile()); all[1].start >= all[0].end {
					t.Error("there is no overlap: docs/safety.md, docs/security.md and the default can be milder")
				}
				return
			}
			f.sane()
		})
	}
}

// Not cut off, the leader learns of it, and leads again once its own last lease is over.
func TestALeaderWhoseSessionAStrangerCloses(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b")
	f.works("a")
	child := f.child("a")
	f.intrude(f.servers)
	f.gone(child)
	f.until("a is back, and leads as the better one", leads("a"))
	f.works("a")
	f.logged("b", "waiting 2.45"+sessionEnd)
	f.sane()
}

// The session of a leader that was killed is closed after a release, so that nobody waits.
func TestAKilledLeaderIsReleased(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(f *fleet, file string){
		"by the guard": func(f *fleet, _ string) {
			syscall.Kill(f.daemon("a"), syscall.SIGKILL)
			f.logged("a", "closed the dead daemon's session")
			f.logged("a", "leadership=released")
		},
		"by the daemon": func(f *fleet, _ string) { f.daemons["a"].signal(syscall.SIGKILL) },
		"by zkelectd release": func(f *fleet, file string) {
			f.crash("a")
			f.eventually("the release", func() bool { // the child's death takes a moment
				out, err := exec.Command("zkelectd", "release", "--session-file", file).CombinedOutput()
				return err == nil && strings.Contains(string(out), "; leadership is released")
			})
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
			f.configure("b", "dc1", 1, longSession+"election: {failback: {mode: manual}}\n")
			f.start("b")
			f.until("b is there", func(g status.Group) bool { return len(g.Members) == 2 && leads("a")(g) })
			f.works("a")
			before := f.snapshot()
			fail(f, file)
			f.until("somebody leads in another term", func(g status.Group) bool {
				return g.State == string(cluster.CurrentReady) && g.Term > before.Elected.Record.Term
			})
			after := f.snapshot()
			if after.Fence.Record.Wait != "" {
				t.Errorf("it has waited %s", after.Fence.Record.Wait)
			}
			// A daemon that has lost its guard gives up by itself.
			if e := after.Elected.Record; name != "by the daemon" && (e.Cause != cluster.CauseFailure || len(e.Exclusions) > 0) {
				t.Errorf("a crash counts as %s (%s), with the strikes %+v", e.Cause, e.Reason, e.Exclusions)
			}
			f.sane()
		})
	}
}

// A host that is lost releases nothing: its successor says why it waits, where people look.
func TestTheWaitAfterALostHost(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b")
	f.works("a")
	f.crash("a")
	f.eventually("explain says why", func() bool {
		out, err := f.run("explain")
		return err == nil && strings.Contains(out, "\nWaiting  2.45"+sessionEnd+"\n")
	})
	f.until("b leads", leads("b"))
	f.eventually("history says why", func() bool {
		out, err := f.run("history")
		return err == nil && strings.Contains(out, "[waited 2.45"+sessionEnd+"]")
	})
	f.sane()
}
