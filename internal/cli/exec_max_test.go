package cli

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"zkelectd/internal/store"
	"zkelectd/internal/test/faultproxy"

	"zkelectd/internal/test/process"
)

// limitedTimeout is the session timeout of these jobs: each must keep its place until the test takes it away.
const limitedTimeout = "8s"

// limited starts exec with --max on a host. Its job runs until the file of [fleet.release] exists, and exits with 7.
func (f *fleet) limited(host string, limit int, flags ...string) *process.Process {
	f.t.Helper()
	const job = `slot-child "$ZKELECTD_SLOT-of-$ZKELECTD_SLOTS" & echo "$ZKELECTD_NODE" >>"$RUNS"
until [ -e "$RUNS.$ZKELECTD_NODE" ]; do sleep 0.05; done; sleep 0.3; kill $!; wait $!; exit 7`
	cmd := f.execCommand(host, job, append([]string{"--max", fmt.Sprint(limit), "--session-timeout", limitedTimeout}, flags...)...)
	cmd.Env = append(cmd.Env, "LEDGER="+f.ledgerFile())
	return f.startCommand(host, cmd)
}

// release lets the job of a host end.
func (f *fleet) release(host string) { put(f.t, f.runs()+"."+host, "") }

// registered waits until so many daemons are in the group.
func (f *fleet) registered(n int) {
	f.t.Helper()
	f.eventually(fmt.Sprint(n, " daemons are in the group"), func() bool {
		names, _, err := f.session.Children(f.t.Context(), f.paths.Nodes(), false)
		return err == nil && len(names) == n
	})
}

// begins waits until the job of a host runs, after the jobs of others.
func (f *fleet) begins(host string, after ...string) {
	f.t.Helper()
	want := strings.Join(append(after, host), "\n") + "\n"
	f.eventually(host+" runs its job", func() bool { return f.countRuns(host) > 0 }, func() string { return read(f.runs()) })
	if got := read(f.runs()); !strings.HasPrefix(got, want) {
		f.t.Fatalf("the jobs ran on %q, want %q", got, want)
	}
	f.recorded(len(after) + 1)
}

// recorded waits until so many jobs have written into the ledger: one that is released earlier may end without a record.
func (f *fleet) recorded(jobs int) {
	f.t.Helper()
	f.eventually(fmt.Sprint(jobs, " jobs have recorded their start"), func() bool {
		return strings.Count(read(f.ledgerFile()), " start\n") >= jobs
	})
}

// newLimited returns the group of jobs of which limit run at once.
func newLimited(t *testing.T, limit int) *fleet {
	t.Helper()
	f := openFleet(t, fmt.Sprintf("/groups/g%d", groups.Add(1)))
	args := []string{"init", "--zk", f.servers[0], "--root", f.paths.Root, "--max", fmt.Sprint(limit)}
	if out, err := zkelectd(args...); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return f
}

// No more than two jobs run at once, in the order of their starts, whatever ends them: by themselves, by a kill of
// exec, with their whole host, or because they lose ZooKeeper. Each exec has the exit status of its own job.
func TestExecLimitsHowManyJobsRun(t *testing.T) {
	t.Parallel()
	f := newLimited(t, 2)
	l := faultproxy.ForTest(t, f.servers[0])
	hosts := []string{"n1", "n2", "n3", "n4", "n5", "n6"}
	for i, host := range hosts {
		if host == "n4" {
			f.limited(host, 2, "--zk", l.Addr())
		} else {
			f.limited(host, 2)
		}
		f.registered(i + 1)
		if i == 1 {
			f.eventually("two run", func() bool { return f.countRuns("n1")+f.countRuns("n2") == 2 })
			put(t, f.runs(), "n1\nn2\n") // they may have begun in any order
		}
	}
	ends := func(host string, want int) {
		t.Helper()
		if got := f.exit(host); got != want {
			t.Errorf("%s: exit status %d, want %d\n%s", host, got, want, f.daemons[host].Output())
		}
	}
	f.release("n1")
	ends("n1", 7)
	f.begins("n3", "n1", "n2")
	f.daemons["n2"].Signal(syscall.SIGKILL) // the guard
	f.begins("n4", "n1", "n2", "n3")
	f.exit("n2")
	again := f.limited("n2", 2)
	f.registered(5)
	daemon := f.guardChild("n3", execDaemonName)
	f.daemons["n3"].Signal(syscall.SIGSTOP)
	syscall.Kill(daemon, syscall.SIGKILL)
	f.daemons["n3"].Signal(syscall.SIGKILL)
	f.exit("n3")
	f.begins("n5", "n1", "n2", "n3", "n4")
	l.SetMode(faultproxy.Refuse)
	f.begins("n6", "n1", "n2", "n3", "n4", "n5")
	ends("n4", statusNotRun)
	f.release("n5")
	ends("n5", 7)
	f.recorded(7)
	f.release("n2")
	ends("n2", 7)
	f.release("n6")
	ends("n6", 7)
	if out := again.Output(); strings.Contains(out, "not run to its end") {
		t.Error(out)
	}
	all := slotLedger(t, f.ledgerFile())
	checkSlots(t, all, 1)
	for i, a := range all {
		atOnce := 1
		for _, b := range all[:i] {
			if a.start < b.end {
				atOnce++
			}
		}
		if atOnce > 2 {
			t.Errorf("%d jobs run when %+v starts: %+v", atOnce, a, all)
		}
	}
	if len(all) != 7 {
		t.Errorf("%d jobs have run: %+v", len(all), all)
	}
}

// A host whose turn does not come says so. Another limit, and another kind of job, is refused with what to do.
func TestExecRefusesAnotherLimit(t *testing.T) {
	t.Parallel()
	f := newLimited(t, 1)
	fails := func(host, want string, flags ...string) {
		t.Helper()
		f.startCommand(host, f.execCommand(host, `echo wrong >>"$RUNS"`, flags...))
		if got, out := f.exit(host), f.daemons[host].Output(); got != statusNotRun || !strings.Contains(out, want) || f.countRuns("wrong") != 0 {
			t.Errorf("%v: exit status %d, want %q\n%s", flags, got, want, out)
		}
		os.Remove(f.daemons[host].Log)
	}
	first := f.limited("n1", 1)
	f.begins("n1")
	fails("n2", "its turn has not come: 1 jobs run, as many as may at once, on n1", "--max", "1", "--wait", "100ms")
	slots := "'zkelectd slots 3 --per-node 1 --root " + f.paths.Root + "' changes that while none of its jobs runs or waits"
	fails("n2", "has 1 slot, so --max 3 is not its limit: use --max 1, as the other hosts do; "+slots, "--max", "3")
	fails("n2", "is for jobs of which a limited number runs at once: add --max")
	f.daemons["other"] = first
	fails("n1", "give each its own --id", "--max", "1")
	f.release("n1")
	if got := f.exit("other"); got != 7 {
		t.Errorf("exit status %d\n%s", got, first.Output())
	}
	if out, err := zkelectd("slots", "--zk", f.servers[0], "--root", f.paths.Root, "3", "--per-node", "1"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	fails("n2", "use --max 3", "--max", "1")
	f.limited("n2", 3)
	f.begins("n2", "n1")
	shows := func(want string, flags ...string) {
		t.Helper()
		args := append([]string{"status", "--zk", f.servers[0], "--root", f.paths.Root}, flags...)
		out, _ := zkelectd(args...)
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("%v shows no %q:\n%s", flags, want, out)
		}
	}
	shows(`^JOB .*\n` + f.groupName() + ` .* running +- +n2 +at any time\n\nGROUP .*\n` + f.groupName() + `/[012] +n2 .*\n\n1 of 1 groups`)
	shows(`^ZKELECTD OK - .*`, "--check")
	f.release("n2")
	if got := f.exit("n2"); got != 7 {
		t.Errorf("exit status %d\n%s", got, f.daemons["n2"].Output())
	}
	shows(`^JOB .*\n` + f.groupName() + ` .* exit status 7 .* n2 +at any time\n$`)
	shows(`^ZKELECTD WARNING - the last run of the job, .* on n2: exit status 7`, "--check")
	remove := []string{"group", "delete", "--zk", f.servers[0], "--root", "/groups", "-g", f.groupName(), "--yes"}
	if out, err := zkelectd(remove...); err != nil || !strings.Contains(out, " is deleted") {
		t.Errorf("%v: %s", err, out)
	}

	f.paths.Root += "-new"
	fails("n1", "'zkelectd init --root "+f.paths.Root+" --max 3' once", "--max", "3")
	if err := store.Init(t.Context(), f.session, f.paths, "the test"); err != nil {
		t.Fatal(err)
	}
	f.startCommand("n1", f.execCommand("n1", "true"))
	f.exit("n1")
	fails("n1", "is for a job that one host runs for all: leave out --max", "--max", "3")
	fails("n1", "--once-per is for a job that one host runs for all", "--max", "2", "--once-per", "1h")
	for _, args := range [][]string{{"--max", "2"}, {"--max", "0", "--root", "/jobs/x"}} {
		out, err := zkelectd(append([]string{"init", "--zk", f.servers[0]}, args...)...)
		if err == nil || !strings.Contains(out, "--max needs a limit from 1 to 128, and --root") {
			t.Errorf("%v: %v, %s", args, err, out)
		}
	}
}

// Another limit than that of the group is not in force after init, which says how to change it.
func TestInitOfAnotherLimit(t *testing.T) {
	t.Parallel()
	f := newLimited(t, 1)
	args := func(limit string) []string {
		return []string{"init", "--zk", f.servers[0], "--root", f.paths.Root, "--max", limit}
	}
	out, err := zkelectd(args("3")...)
	hint := regexp.MustCompile(`or run 'zkelectd (slots 3 [^']*)'`).FindStringSubmatch(out)
	if err == nil || hint == nil || !strings.Contains(out, "has 1 slot already, not 3 slots, at most 1 per node") {
		t.Fatalf("%v: %s", err, out)
	}
	if f.exists(f.paths.OfSlot(1).Leader()) {
		t.Error("another slot was created")
	}
	for _, words := range [][]string{strings.Fields(hint[1]), args("3")} {
		if out, err := zkelectd(words...); err != nil {
			t.Errorf("%v: %v, %s", words, err, out)
		}
	}
}
