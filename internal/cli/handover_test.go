package cli

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/sys/procinfo"
	"zkelectd/internal/test/zkserver"
)

// The session timeout is longer than the test waits, so the next leader leads because of the RELEASE.
func TestStopHandsOverAtOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	ids := []string{"a", "b", "c"}
	for i, id := range ids {
		f.configure(id, "dc1", 100-i, "zookeeper: {session_timeout: 60s}\n")
		f.start(id)
	}
	f.until("a leads all", func(g status.Group) bool { return len(g.Members) == 3 && leads("a")(g) })
	f.waitForWork("a")
	first := f.snapshot().Elected.Record.Term
	for i, id := range ids[:2] {
		f.daemons[id].signal(syscall.SIGTERM)
		if code := f.exit(id); code != 0 {
			t.Errorf("%s: exit status %d", id, code)
		}
		next := ids[i+1]
		g := f.until(next+" leads", leads(next))
		if g.Term <= first || len(g.Members) != 2-i || len(g.Exclusions) != 0 {
			t.Errorf("after %s: term %d of %d, %d members, exclusions %v", id, g.Term, first, len(g.Members), g.Exclusions)
		}
		f.waitForWork(next)
	}
	all := f.checkInvariants()
	last := all[max(0, len(all)-3):] // others may have led before all had joined
	for i, id := range ids {
		if last[i].node != id || (i < 2 && (!last[i].ended || last[i].end > last[i+1].start)) {
			t.Errorf("tenure %d: %+v", i, last)
		}
	}
}

// A lost host can't release: there is no leader before its lease is over, which the session timeout covers.
func TestLostHostIsReplacedAfterItsLease(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b")
	f.waitForWork("a")
	child := f.child("a")
	f.crash("a")
	killed := boottime.Now()
	f.waitForDeath(child)
	f.until("b leads", leads("b"))
	f.waitForWork("b")
	all := f.checkInvariants()
	// T = 4 s, of which at most a sixth may have passed since the server last heard from it.
	if after := time.Duration(all[len(all)-1].start) - killed; after < 1800*time.Millisecond {
		t.Errorf("b began %s after a was killed", after)
	}
}

// waitForWork waits until the child that started last is this node's.
func (f *fleet) waitForWork(id string) {
	f.t.Helper()
	f.eventually("the child of "+id+" works", func() bool {
		all := ledger(f.t, f.ledgerFile())
		return len(all) > 0 && all[len(all)-1].node == id
	})
}

// child returns the pid of a node's child that its daemon logged last.
func (f *fleet) child(id string) int {
	f.t.Helper()
	f.logged(id, "child started")
	out := f.daemons[id].output()
	var pid int
	if _, err := fmt.Sscanf(out[strings.LastIndex(out, "child started"):], "child started\" node="+id+" pid=%d", &pid); err != nil {
		f.t.Fatal(err)
	}
	return pid
}

// waitForDeath waits until a process has ended or is a zombie.
func (f *fleet) waitForDeath(pid int) {
	f.t.Helper()
	f.eventually(fmt.Sprintf("process %d is gone", pid), func() bool {
		s, err := procinfo.ReadStat(pid)
		return err != nil || s.Ended()
	})
}

func TestStopLeavesNoGrandchild(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	pids := f.dir + "/pids"
	// Both ignore TERM, and the grandchild keeps nothing but its process group.
	f.configure("a", "dc1", 1, fmt.Sprintf(`child: {command: [sh, -c, "trap '' TERM; sh -c 'echo $$ >>%s; while :; do sleep 0.05; done' </dev/null >/dev/null 2>&1 & echo $$ >>%s; while :; do sleep 0.05; done"], stop_timeout: 300ms}
`, pids, pids))
	f.start("a")
	f.until("a leads", leads("a"))
	f.eventually("both have joined", func() bool { return strings.Count(read(pids), "\n") == 2 })
	f.daemons["a"].signal(syscall.SIGTERM)
	if code := f.exit("a"); code != 0 {
		t.Errorf("exit status %d", code)
	}
	for _, pid := range strings.Fields(read(pids)) {
		// The daemon has ended, so they must be dead already.
		if running(pid) {
			t.Errorf("process %s survived: %s", pid, read("/proc/"+pid+"/stat"))
		}
	}
}

// If no member can start the child, the group slows down instead of using up terms (L3), and recovers at once.
func TestFailuresOnAllHostsUseFewTerms(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for _, id := range []string{"a", "b"} {
		f.configure(id, "dc1", 1, "child: {command: [/no/such/program], stop_timeout: 400ms}\n")
		f.start(id)
	}
	strikes := func(g status.Group) int {
		n := 0
		for _, x := range g.Exclusions {
			n += x.Strikes
		}
		return n
	}
	f.until("first strikes", func(g status.Group) bool { return strikes(g) >= 2 })
	first := f.snapshot().Elected.Record.Term
	began := time.Now()
	f.until("three seconds", func(status.Group) bool { return time.Since(began) > 3*time.Second })
	if burnt := f.snapshot().Elected.Record.Term - first; burnt > 10 {
		t.Errorf("%d terms in %s", burnt, time.Since(began))
	}
	f.configure("c", "dc1", 1, "")
	f.start("c")
	f.until("c leads", leads("c"))
	f.checkInvariants()
}

func TestPreStartThatFailsIsAStrike(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	post := f.dir + "/post"
	f.configure("a", "dc1", 2, fmt.Sprintf("hooks: {pre_start: [sh, -c, \"echo no volume; exit 7\"], post_stop: [touch, %s]}\n", post))
	f.start("a")
	f.logged("a", "hooks.pre_start sh failed: exited with status 7: no volume")
	f.configure("b", "dc1", 1, "")
	f.start("b")
	g := f.until("b leads", leads("b"))
	if len(g.Exclusions) != 1 || g.Exclusions[0].Node != "a" || !strings.Contains(g.Exclusions[0].Reason, "no volume") {
		t.Errorf("exclusions %+v", g.Exclusions)
	}
	if _, err := os.Stat(post); err != nil {
		t.Errorf("what pre_start began was not undone: %v", err)
	}
	for _, tenure := range f.checkInvariants() {
		if tenure.node == "a" {
			t.Errorf("a's child ran: %+v", tenure)
		}
	}
}

func TestFailback(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ failback, want string }{
		"immediate":     {"immediate", "b"},
		"manual":        {"manual", "a"},
		"delayed":       {"1h", "a"},
		"delay is over": {"1ms", "b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.configure("a", "dc1", 1, "policy: {failback: "+c.failback+"}\n")
			f.configure("b", "dc1", 2, "policy: {failback: "+c.failback+"}\n")
			f.start("a")
			f.until("a leads", leads("a"))
			f.start("b")
			f.until("both have joined", func(g status.Group) bool { return len(g.Members) == 2 })
			// The elector has judged b once it has reacted to a later change.
			f.write(remove(f.paths.Policy()))
			f.eventually("the elector has looked", func() bool { s := f.snapshot(); return s.Policy.Readable() })
			f.until(c.want+" leads", leads(c.want))
			f.daemons[c.want].signal(syscall.SIGTERM)
			f.exit(c.want)
			other := map[string]string{"a": "b", "b": "a"}[c.want]
			f.until("the other leads", leads(other))
			f.checkInvariants()
		})
	}
}

func TestRefusedReloadChangesNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b")
	term := f.snapshot().Elected.Record.Term
	f.configure("b", "dc9", 500, "policy: {sites: {dc9: 7}}\nchild: {stop_timeout: soon}\n")
	f.daemons["b"].signal(syscall.SIGHUP)
	f.logged("b", "reload refused, the running configuration stays")
	f.logged("b", "child.stop_timeout")
	// The next reload comes after the refused one, and finds the state that it left.
	f.configure("b", "dc1", 99, "election: {exclusion: 1s}\n")
	f.daemons["b"].signal(syscall.SIGHUP)
	f.logged("b", "reloaded, no setting has changed")
	s := f.snapshot()
	if s.Elected.Record.Term != term || s.Policy.Record.Revision != 1 {
		t.Errorf("term %d, then %d; policy %+v", term, s.Elected.Record.Term, s.Policy.Record)
	}
	for _, m := range s.Members {
		if m.Node.Record.Site != "dc1" {
			t.Errorf("member: got %+v", m)
		}
	}
}

// Stopping a daemon while ZooKeeper is down must not wait until it is back.
func TestStopWithoutServers(t *testing.T) {
	t.Parallel()
	server, err := zkserver.Start(t.Context(), zkserver.Options{Tick: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Stop() })
	f := newFleet(t, server.Addr())
	f.join("a")
	f.waitForWork("a")
	child := f.child("a")
	server.Kill()
	f.daemons["a"].signal(syscall.SIGTERM)
	f.waitForDeath(child)
	if code := f.exit("a"); code != 0 {
		t.Errorf("exit status %d", code)
	}
	f.logged("a", "it ends with the session")
	f.checkInvariants()
}
