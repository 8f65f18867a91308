package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
)

// addressFile is the file that pre_start creates and post_stop removes, in place of the address of a service.
func (f *fleet) addressFile(id string) string { return filepath.Join(f.dir, "address-"+id) }

// withAddress configures a daemon that holds an address while it leads.
func (f *fleet) withAddress(id string, priority int) {
	f.t.Helper()
	f.configure(id, "dc1", priority, fmt.Sprintf(`
zookeeper: {session_timeout: 30s, session_file: %s}
hooks:
  pre_start: [touch, %[2]s]
  post_stop: [rm, %[2]s]
  on_change: [sh, -c, 'cat >>%[3]s']
election: {exclusion: 1s}
policy: {failback: manual}
`, f.sessionFile(id), f.addressFile(id), f.changes(id)))
}

// releaseSession runs 'zkelectd release' for a session file.
func (f *fleet) releaseSession(session string) (string, error) {
	return zkelectd("release", "--session-file", session)
}

// releasesSession waits until that closes the session: the child takes a moment to die.
func (f *fleet) releasesSession(session string) {
	f.t.Helper()
	f.eventually("the release", func() bool {
		out, err := f.releaseSession(session)
		return err == nil && strings.Contains(out, "closed session 0x")
	})
}

func (f *fleet) sessionFile(id string) string { return filepath.Join(f.dir, "session-"+id) }

func (f *fleet) changes(id string) string { return filepath.Join(f.dir, "changes-"+id) }

func (f *fleet) holds(id string) bool {
	_, err := os.Stat(f.addressFile(id))
	return err == nil
}

// Whatever kills the leader, its post_stop undoes what pre_start did, and its leadership is released before its session is closed, so
// that the next leader need not wait (A5).
func TestAKilledLeaderIsCleanedUpAndReleased(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(f *fleet){
		"by the guard": func(f *fleet) {
			syscall.Kill(f.daemon("a"), syscall.SIGKILL)
			f.logged("a", "closed the dead daemon's session")
			f.logged("a", "leadership=released")
		},
		"by the daemon": func(f *fleet) {
			daemon := f.daemon("a")
			f.daemons["a"].Signal(syscall.SIGKILL)
			f.waitForDeath(daemon)
		},
		"by zkelectd release": func(f *fleet) {
			release := func(want string) bool {
				out, err := f.releaseSession(f.sessionFile("a"))
				return err == nil && strings.Contains(out, want)
			}
			f.crash("a")
			f.eventually("the release", func() bool { return release("; leadership is released") }) // the child takes a moment to die
			if !release("nothing to release") {
				f.t.Error("it releases again")
			}
		},
		"by the next start": func(f *fleet) {
			f.crash("a")
			f.start("a")
			f.logged("a", "; leadership is released")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.withAddress("a", 100)
			f.start("a")
			f.until("a leads", leads("a"))
			f.withAddress("b", 90)
			f.start("b")
			f.until("b has joined", func(g status.Group) bool { return len(g.Members) == 2 && leads("a")(g) })
			f.waitForWork("a")
			if !f.holds("a") {
				t.Fatal("a does not hold the address")
			}
			before := f.snapshot()
			fail(f)
			f.eventually("a drops the address", func() bool { return !f.holds("a") })
			f.eventually("on_change of a", func() bool { return strings.Contains(read(f.changes("a")), `"state":"standby"`) })
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

// If all processes are killed and nothing can prove the end of the work, post_stop still runs, once. The session is not closed.
func TestPostStopRunsThoughTheEndOfTheWorkIsNotProven(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.startLeader("a", fmt.Sprintf(`
zookeeper: {session_timeout: 30s, session_file: %s}
hooks: {pre_start: [touch, %[2]s], post_stop: [rm, %[2]s], on_change: [sh, -c, "exit 9"]}
child: {command: [sleep, "1000"], containment: keeper, stop_timeout: 400ms}
`, f.sessionFile("a"), f.addressFile("a")))
	keeper, daemon := f.guardChild("a", "keeper"), f.daemon("a")
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		syscall.Kill(keeper, sig)
		syscall.Kill(daemon, sig)
		f.daemons["a"].Signal(sig)
	}
	f.exit("a")
	out, err := f.releaseSession(f.sessionFile("a"))
	if err == nil || !strings.Contains(out, "the session is left to expire: some of the work may still run: group ") || !strings.Contains(out, "the keeper was killed before it recorded") ||
		!strings.Contains(out, "exit status 9; this changes nothing else") {
		t.Errorf("%v: %s", err, out)
	}
	if f.holds("a") {
		t.Error("a holds the address")
	}
	f.checkInvariants()
}

// 'zkelectd release' and the next start may run at the same time. One of them cleans up, and the other has nothing to do.
func TestLeftoversAreCleanedUpOneAtATime(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	session, runs := f.sessionFile("a"), filepath.Join(f.dir, "runs")
	f.startLeader("a", fmt.Sprintf("zookeeper: {session_timeout: 30s, session_file: %s}\n"+
		"hooks: {post_stop: [sh, -c, 'echo began >>%[2]s; sleep 0.5; echo ended >>%[2]s']}\n", session, runs))
	f.waitForWork("a")
	keeper := f.guardChild("a", "keeper")
	f.crash("a")
	f.waitForDeath(keeper) // so that both find all of the work dead
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if out, err := f.releaseSession(session); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	both.Wait()
	if got := read(runs); got != "began\nended\n" {
		t.Errorf("post_stop did not run exactly once: %q", got)
	}
}
