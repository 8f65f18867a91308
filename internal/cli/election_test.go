package cli

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/operator/status"
)

func TestReloadMovesTheLeader(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b", "c")

	f.waitForWork("a")

	// A file with errors is refused as a whole.
	f.configure("c", "dc9", 500, "policy: {sites: {dc9: many}}\nlog: {level: loud}\n")
	f.daemons["c"].signal(syscall.SIGHUP)
	f.logged("c", `policy.sites`)
	f.logged("c", `log.level`)
	f.logged("c", "the running configuration stays")
	if g := f.until("nothing moves", leads("a")); len(g.Members) != 3 {
		t.Errorf("members: %+v", g.Members)
	}

	f.configure("c", "dc1", 500, "election: {exclusion: 2m}\n")
	f.daemons["c"].signal(syscall.SIGHUP)
	f.until("c leads by its new priority", leads("c"))
	f.waitForWork("c")
	f.logged("c", "these settings need a restart")
	f.logged("c", "election.exclusion")

	f.configure("b", "dc2", 1, "policy: {sites: {dc2: 7}}\n")
	f.daemons["b"].signal(syscall.SIGHUP)
	g := f.until("b leads by the new policy", leads("b"))
	if !strings.Contains(g.Policy, "revision 2, published by b") {
		t.Errorf("policy: %s", g.Policy)
	}

	// Each child has ended before the next one starts; on a busy machine it is killed before it says so itself.
	f.waitForWork("b")
	all := f.checkInvariants()
	last := all[max(0, len(all)-3):] // others may have led before all had joined
	for i, want := range []string{"a", "c", "b"} {
		if last[i].node != want {
			t.Fatalf("tenures %+v", all)
		}
	}
}

func TestSecondStopKillsTheChild(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.configure("a", "dc1", 1, "zookeeper: {session_timeout: 40s}\nchild: {command: [ledger-child], env: {LEDGER: LEDGERFILE, MODE: ignore-term}, stop_timeout: 14s}\n")
	f.start("a")
	f.until("a leads", leads("a"))
	f.waitForChild("a", 1)
	began := time.Now()
	f.daemons["a"].signal(syscall.SIGTERM)
	f.eventually("the stop is under way", func() bool { return f.until("", func(status.Group) bool { return true }).Leader == "a" })
	f.daemons["a"].signal(syscall.SIGINT)
	if code := f.exit("a"); code != 0 {
		t.Errorf("exit status %d", code)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("ended after %s", took)
	}
}

func TestSameIDIsRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a")
	first := f.daemons["a"]
	f.configure("a", "dc1", 100, "")
	second := f.start("a")
	t.Cleanup(func() {
		first.cmd.Process.Kill()
		<-first.done
	})
	if code := f.exit("a"); code != 1 {
		t.Errorf("exit status %d", code)
	}
	out := second.output()
	for _, want := range []string{`node id "a" is taken`, "host ", fmt.Sprintf("pid %d", first.cmd.Process.Pid), "session 0x", "--id"} {
		if !strings.Contains(out, want) {
			t.Errorf("the refusal lacks %q: %s", want, out)
		}
	}
	f.until("the first is undisturbed", leads("a"))
}

func TestStalledCandidateIsExcluded(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	const work = "child: {command: [ledger-child], env: {LEDGER: LEDGERFILE}, stop_timeout: 400ms, ready: "
	f.configure("a", "dc1", 2, work+"{tcp: \"127.0.0.1:1\", timeout: 500ms}}\n")
	f.configure("b", "dc1", 1, "election: {exclusion: 1h}\n"+work+"{timeout: 500ms}}\n")
	f.start("b")
	f.until("b leads", leads("b"))
	f.start("a")
	g := f.until("b leads again", func(g status.Group) bool { return leads("b")(g) && len(g.Exclusions) == 1 })
	if x := g.Exclusions[0]; x.Node != "a" || x.Strikes != 1 || !strings.Contains(x.Reason, "the child was not ready within 500ms") ||
		!strings.Contains(x.Reason, "child.ready.tcp 127.0.0.1:1: dial tcp ") { // refused, or a timeout on a busy machine
		t.Errorf("exclusion: got %+v", x)
	}
	f.checkInvariants()
}

// A daemon that is alone and has a command that does not exist reports that, and does not use up terms.
func TestCommandThatDoesNotExist(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.configure("a", "dc1", 1, "child: {command: [/no/such/program], stop_timeout: 400ms}\n")
	f.start("a")
	f.until("the strikes slow it down", func(g status.Group) bool { return len(g.Exclusions) == 1 && g.Exclusions[0].Strikes >= 3 })
	g := f.until("a status", func(status.Group) bool { return true })
	if x := g.Exclusions[0]; x.Strikes > 4 || !strings.Contains(x.Reason, "/no/such/program") {
		t.Errorf("exclusion: got %+v", x)
	}
	f.logged("a", `level=WARN msg="now standby"`) // giving up is no ordinary event
	f.configure("b", "dc1", 1, "")
	f.start("b")
	f.until("b leads", leads("b"))
	f.checkInvariants()
}

func TestChildThatCrashesIsRestartedAndThenGivenUp(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.configure("a", "dc1", 2, "child: {command: [ledger-child], env: {LEDGER: LEDGERFILE, MODE: crash}, stop_timeout: 400ms, max_restarts: 2}\n")
	f.start("a")
	f.waitForChild("a", 1)
	f.configure("b", "dc1", 1, "")
	f.start("b")
	g := f.until("b leads, a is excluded", func(g status.Group) bool { return leads("b")(g) && len(g.Exclusions) == 1 })
	if x := g.Exclusions[0]; !strings.Contains(x.Reason, "exited with status 3, 3 times") {
		t.Errorf("the reason is %q", x.Reason)
	}
	all := f.checkInvariants()
	if len(all) < 3 || all[0].term != all[1].term || all[1].term != all[2].term {
		t.Errorf("not restarted in place: %+v", all)
	}
}

func TestSidecar(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.start("a", "--zk", shared.Addr(), "--root", f.paths.Root, "--id", "a", "--site", "dc7", "--priority", "5", "--session-timeout", "6s",
		"--", "sh", "-c", "env | grep ^ZKELECTD_ >"+f.dir+"/env; exec sleep 1000")
	g := f.until("a leads", leads("a"))
	f.eventually("its child's environment", func() bool {
		env := read(f.dir + "/env")
		for _, want := range []string{"NODE=a", "SITE=dc7", "GROUP=" + strings.TrimPrefix(f.paths.Root, "/groups/"), "ROOT=" + f.paths.Root, fmt.Sprintf("TERM=%d", g.Term), "CAUSE=first"} {
			if !strings.Contains(env, "ZKELECTD_"+want+"\n") {
				return false
			}
		}
		return strings.Count(env, "ZKELECTD_") == 8
	})
}

func TestHooks(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	out := f.dir + "/hooks"
	hook := func(name string) string {
		return fmt.Sprintf(`[sh, -c, "echo %s $ZKELECTD_TERM >>%s"]`, name, out)
	}
	f.configure("a", "dc1", 1, fmt.Sprintf(`hooks:
  pre_start: %s
  post_stop: %s
  on_change: [sh, -c, "cat >>%s.json"]
child: {command: [sh, -c, "trap 'echo end $ZKELECTD_TERM >>%s; exit 0' TERM; echo child $ZKELECTD_TERM >>%s; while :; do sleep 0.05; done"], stop_timeout: 1s}
`, hook("pre"), hook("post"), out, out, out))
	f.start("a")
	g := f.until("a leads", leads("a"))
	f.eventually("its child has begun", func() bool { return strings.Contains(read(out), "child") })
	f.stop("a")
	want := fmt.Sprintf("pre %d\nchild %d\nend %d\npost %d\n", g.Term, g.Term, g.Term, g.Term)
	if got := read(out); got != want {
		t.Errorf("hooks ran as\n%s", got)
	}
	var states []string
	for line := range strings.Lines(read(out + ".json")) {
		_, rest, _ := strings.Cut(line, `"state":"`)
		state, _, _ := strings.Cut(rest, `"`)
		states = append(states, state)
	}
	if got := strings.Join(states, " "); got != "preparing leading standby" {
		t.Errorf("on_change saw %q", got)
	}
}
