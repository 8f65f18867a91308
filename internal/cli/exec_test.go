package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
	"zkelectd/internal/test/faultproxy"

	"zkelectd/internal/test/process"
)

// runs is a file to which the jobs of a test append a line each.
func (f *fleet) runs() string { return filepath.Join(f.dir, "runs") }

// countRuns returns how many jobs were started with a name.
func (f *fleet) countRuns(name string) int { return strings.Count(read(f.runs()), name+"\n") }

// exec starts zkelectd exec on a host for the job that has the group of the fleet. The script appends to $RUNS.
func (f *fleet) exec(host, script string, flags ...string) *process.Process {
	f.t.Helper()
	return f.startCommand(host, f.execCommand(host, script, flags...))
}

func (f *fleet) execCommand(host, script string, flags ...string) *exec.Cmd {
	dir, name := path.Split(f.paths.Root)
	args := append([]string{"exec", "-g", name, "--root", strings.TrimSuffix(dir, "/"), "--session-timeout", "2s"}, flags...)
	if !strings.Contains(strings.Join(flags, " "), "--zk") {
		args = append(args, "--zk", f.servers[0])
	}
	cmd := exec.Command("zkelectd", append(args, "--", "sh", "-c", script)...)
	cmd.Env = append(os.Environ(), "ZKELECTD_NODE_ID="+host, "RUNS="+f.runs())
	return cmd
}

// Hosts that start a job at the same time run it once, and each knows how it ended. One that starts later does not repeat it.
func TestExecRunsAJobOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	root := f.paths.Root
	for round := range 2 {
		f.paths.Root = fmt.Sprintf("%s-%d", root, round)
		if err := store.Init(t.Context(), f.session, f.paths, "the test"); err != nil {
			t.Fatal(err)
		}
		statuses := make(map[int]int)
		for _, host := range []string{"n1", "n2"} {
			f.exec(host, `echo run >>"$RUNS"; exit 3`, "--once-per", "1h", "--skip-status", "9")
		}
		for _, host := range []string{"n1", "n2"} {
			statuses[f.exit(host)]++
		}
		f.exec("n3", `echo run >>"$RUNS"`, "--once-per", "1h")
		if late := f.exit("n3"); late != 0 || statuses[3] != 1 || statuses[9] != 1 || f.countRuns("run") != round+1 {
			t.Fatalf("round %d: the exit statuses are %v and %d, and there were %d runs", round, statuses, late, f.countRuns("run"))
		}
	}
	for _, host := range []string{"n1", "n2", "n3"} {
		if out := f.daemons[host].Output(); out != "" {
			t.Errorf("%s prints %s", host, out)
		}
	}
}

func TestExecPassesTheStatusOfTheJob(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for script, want := range map[string]int{"exit 42": 42, "kill -KILL $$": 137, "kill 0; exit 5": 143, "exec /no/such/program": 127} {
		f.exec("n1", script, "--once-per", "0s")
		if got := f.exit("n1"); got != want {
			t.Errorf("%s: exit status %d, want %d\n%s", script, got, want, f.daemons["n1"].Output())
		}
	}
}

// A run that was stopped, or whose process was killed, has not ended: the next exec repeats it, unless it is to run at most once.
func TestExecRepeatsARunThatWasStopped(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	const long = `echo $$ >"$RUNS.pid"; echo long >>"$RUNS"; sleep 1000 & wait`
	f.exec("n1", long, "--once-per", "1h")
	f.eventually("the job runs", func() bool { return f.countRuns("long") == 1 })
	f.daemons["n1"].Signal(syscall.SIGTERM)
	if got := f.exit("n1"); got != statusNotRun || !strings.Contains(f.daemons["n1"].Output(), "the job has not run to its end") {
		t.Errorf("exit status %d\n%s", got, f.daemons["n1"].Output())
	}

	// The other host waits, and repeats the run when the first one is killed.
	first := f.exec("n1", long, "--once-per", "1h")
	f.eventually("the job runs again", func() bool { return f.countRuns("long") == 2 })
	job := strings.TrimSpace(read(f.runs() + ".pid"))
	f.exec("n2", `echo replaced >>"$RUNS"`, "--once-per", "1h", "--wait", "10m")
	f.until("n2 waits", func(g status.Group) bool { return len(g.Members) == 2 })
	first.Signal(syscall.SIGKILL)
	f.eventually("the job is dead", func() bool { return !running(job) })
	if got := f.exit("n2"); got != 0 || f.countRuns("replaced") != 1 {
		t.Errorf("exit status %d, %d runs\n%s", got, f.countRuns("replaced"), f.daemons["n2"].Output())
	}
	f.exit("n1")

	f.exec("n1", long, "--once-per", "0s")
	f.eventually("the job runs a third time", func() bool { return f.countRuns("long") == 3 })
	f.daemons["n1"].Signal(syscall.SIGTERM)
	f.exit("n1")
	f.exec("n2", `echo again >>"$RUNS"`, "--once-per", "1h", "--at-most-once")
	if got := f.exit("n2"); got != 0 || f.countRuns("again") != 0 {
		t.Errorf("exit status %d, %d runs", got, f.countRuns("again"))
	}
}

// A job that loses its lease is dead before another host can run it.
func TestExecStopsAJobThatLosesItsLease(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	l := faultproxy.ForTest(t, f.servers[0])
	f.exec("n1", `trap '' TERM; echo $$ >"$RUNS.pid"; echo held >>"$RUNS"; while :; do sleep 0.1; done`, "--zk", l.Addr())
	f.eventually("the job runs", func() bool { return f.countRuns("held") == 1 })
	job := strings.TrimSpace(read(f.runs() + ".pid"))
	if _, err := strconv.Atoi(job); err != nil {
		t.Fatal(err)
	}
	l.SetMode(faultproxy.Refuse)
	f.exec("n2", `kill -0 `+job+` && echo twice >>"$RUNS"; echo replaced >>"$RUNS"`, "--wait", "10m")
	if got := f.exit("n2"); got != 0 || f.countRuns("replaced") != 1 || f.countRuns("twice") != 0 {
		t.Errorf("exit status %d, runs: %s\n%s", got, read(f.runs()), f.daemons["n2"].Output())
	}
	if got := f.exit("n1"); got != statusNotRun {
		t.Errorf("exit status %d\n%s", got, f.daemons["n1"].Output())
	}
}

// A host that still runs the job of an earlier occasion does not start another one. Without ZooKeeper nothing is run.
func TestExecThatCannotRun(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.exec("n1", `echo slow >>"$RUNS"; sleep 1000`)
	f.eventually("the job runs", func() bool { return f.countRuns("slow") == 1 })
	second := *f
	second.daemons = make(map[string]*process.Process)
	second.exec("n1", `echo second >>"$RUNS"`)
	if got := second.exit("n1"); got != 0 || f.countRuns("second") != 0 {
		t.Errorf("exit status %d\n%s", got, second.daemons["n1"].Output())
	}
	f.daemons["n1"].Signal(syscall.SIGTERM)
	f.exit("n1")
	f.exec("n1", "true", "--zk", "127.0.0.1:1", "--connect-timeout", "100ms")
	if got := f.exit("n1"); got != statusNotRun || !strings.Contains(f.daemons["n1"].Output(), "127.0.0.1:1") {
		t.Errorf("exit status %d\n%s", got, f.daemons["n1"].Output())
	}
}

// Exec needs no files: a full disk loses nothing, and a kill leaves nothing behind. The job gets the standard input,
// unless that is a terminal. No other user can learn the address at which the daemon will listen, and take it. The
// job does not get it either.
func TestExecNeedsNoFiles(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.env = []string{"TMPDIR=/no/such/directory"}
	input := filepath.Join(f.dir, "input")
	put(t, input, "from cron\n")
	const job = `read -r line; echo "$ZKELECTD_NODE: $line" >>"$RUNS"
env >"$RUNS.env"; cat /proc/[0-9]*/cmdline >>"$RUNS.env"; exit 3`
	cmd := f.execCommand("n1", job, "--id", "other")
	stdin, err := os.Open(input)
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	cmd.Stdin = stdin
	f.startCommand("n1", cmd)
	if got := f.exit("n1"); got != 3 || read(f.runs()) != "other: from cron\n" {
		t.Errorf("exit status %d, %q\n%s", got, read(f.runs()), f.daemons["n1"].Output())
	}
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	cmd = f.execCommand("n1", `readlink /proc/self/fd/0 >>"$RUNS"`, "--once-per", "0s")
	cmd.Stdin = terminal // from which the shell reads, too
	f.startCommand("n1", cmd)
	if got := f.exit("n1"); got != 0 || !strings.HasSuffix(read(f.runs()), "\n/dev/null\n") {
		t.Errorf("exit status %d, %q\n%s", got, read(f.runs()), f.daemons["n1"].Output())
	}
	if shown := read(f.runs() + ".env"); !strings.Contains(shown, execJobName) || strings.Contains(shown, "@zkelectd-exec-") {
		t.Errorf("shown: %q", shown)
	}
}

// Each of these signals asks exec to stop.
func TestExecIsStoppedBySignals(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for i, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGQUIT} {
		f.exec("n1", `echo started >>"$RUNS"; sleep 1000`, "--once-per", "0s")
		f.eventually("the job runs", func() bool { return f.countRuns("started") == i+1 })
		f.daemons["n1"].Signal(sig)
		got, out := f.exit("n1"), f.daemons["n1"].Output()
		if got != statusNotRun || strings.Contains(out, "goroutine") || !strings.Contains(out, "the job has not run to its end: it was stopped") {
			t.Errorf("%s: exit status %d\n%s", sig, got, out)
		}
	}
}

// Signals that were ignored when exec was started, as by nohup or for a command in the background, stay ignored.
func TestExecKeepsIgnoredSignals(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cmd := f.execCommand("n1", `echo started >>"$RUNS"; until [ -e "$RUNS.go" ]; do sleep 0.05; done; exit 7`, "--once-per", "0s")
	ignoring := exec.Command("sh", append([]string{"-c", `trap "" HUP INT QUIT; exec "$0" "$@"`}, cmd.Args...)...)
	ignoring.Env = cmd.Env
	f.startCommand("n1", ignoring)
	f.eventually("the job runs", func() bool { return f.countRuns("started") == 1 })
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		f.daemons["n1"].Signal(sig)
	}
	f.eventually("the signals are delivered", func() bool {
		return strings.Contains(read(fmt.Sprintf("/proc/%d/status", f.daemons["n1"].Process.Pid)), "ShdPnd:\t0000000000000000\n")
	})
	put(t, f.runs()+".go", "")
	if got := f.exit("n1"); got != 7 {
		t.Errorf("exit status %d\n%s", got, f.daemons["n1"].Output())
	}
}

// The exit status of a job that is not run because of the settings is not one that a job is likely to have.
func TestExecRefusesWrongSettings(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for flag, want := range map[string]string{
		"--once-per=-1h":     "--once-per -1h0m0s is negative",
		"--skip-status=256":  "--skip-status 256 is not between 0 and 255",
		"--config=/no/such":  "/no/such: cannot be read",
		"--log-level=absent": "is not one of debug, info, warn, error",
		"--group=a/b":        `-g "a/b": the name of a job contains '/', which is not allowed in a znode path; --root is the znode above the jobs`,
		"--nothing":          "unknown flag: --nothing",
		"--id=a/b":           "--id: node.id",
	} {
		f.exec("n1", `echo wrong >>"$RUNS"`, flag)
		if got, out := f.exit("n1"), f.daemons["n1"].Output(); got != statusNotRun || !strings.Contains(out, want) || f.countRuns("wrong") != 0 {
			t.Errorf("%s: exit status %d\n%s", flag, got, out)
		}
	}
}

// status lists the jobs with their last runs, and shows that of one job.
func TestStatusOfJobs(t *testing.T) {
	t.Parallel()
	e := newEstate(t, "failing", "killed")
	e.exec("n1", "exit 3", "--once-per", "1h")
	e.exit("n1")
	killed := e.fleets["killed"]
	killed.exec("n2", `echo long >>"$RUNS"; sleep 1000 & wait`)
	killed.eventually("the job runs", func() bool { return killed.countRuns("long") == 1 })
	show := func(args ...string) string {
		out, err := e.run(append([]string{"status"}, args...)...)
		if err != nil {
			t.Errorf("%v: %v, %s", args, err, out)
		}
		return out
	}
	line := func(pattern string) {
		t.Helper()
		if out := show(); !regexp.MustCompile("(?m)^" + strings.ReplaceAll(pattern, " ", " +") + "$").MatchString(out) {
			t.Errorf("no line is %s:\n%s", pattern, out)
		}
	}
	const at = `[0-9]{4}-[0-9-]+ [0-9:]+`
	line("JOB LAST RUN RESULT TOOK NODE NEXT RUN")
	line("failing " + at + ` exit status 3 [0-9.]+m?s n1 from ` + at)
	line("killed " + at + " running - n2 from " + at)
	killed.daemons["n2"].Signal(syscall.SIGTERM)
	killed.exit("n2")
	line("killed " + at + " end not known: it was killed or stopped, or its host was lost - n2 at any time")
	if out := show("-g", "failing"); !strings.Contains(out, "\nlast run of the job: ") || !strings.Contains(out, ", exit status 3, took ") {
		t.Error(out)
	}
	var all groupsStatus
	if err := json.Unmarshal([]byte(show("-o", "json")), &all); err != nil || len(all.Groups) != 2 {
		t.Fatal(err, all)
	}
	if r := all.Groups[0].LastRun; r == nil || *r.ExitStatus != 3 || r.Node != "n1" || r.Next.Sub(r.Started) != time.Hour || r.Ended.Before(r.Started) {
		t.Errorf("%+v", r)
	}
	if r := all.Groups[1].LastRun; r == nil || r.Running || r.Ended != nil || r.ExitStatus != nil || r.Next != nil {
		t.Errorf("%+v", r)
	}
}

// A run, as its record has it.
func TestLastRun(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_800_000_000, 0)
	end := start.Add(90 * time.Second)
	hour := cluster.Duration(time.Hour)
	for name, c := range map[string]struct {
		run   cluster.Run
		at    time.Time // of the write
		leads bool
		want  string
	}{
		"ended":                    {cluster.Run{Node: "n1", Ended: true, Status: 3, Started: start, OncePer: hour}, end, false, "exit status 3|1m30s|n1|from"},
		"ended, and has not left":  {cluster.Run{Node: "n1", Ended: true, Started: start, OncePer: hour}, end, true, "exit status 0|1m30s|n1|from"},
		"ended, without a limit":   {cluster.Run{Node: "n1", Ended: true, Started: start}, end, false, "exit status 0|1m30s|n1|at any time"},
		"running":                  {cluster.Run{Node: "n1", OncePer: hour}, start, true, "running|-|n1|from"},
		"killed":                   {cluster.Run{Node: "n1", OncePer: hour}, start, false, "end not known: it was killed or stopped, or its host was lost|-|n1|at any time"},
		"killed, and at most once": {cluster.Run{Node: "n1", OncePer: hour, AtMostOnce: true}, start, false, "end not known: it was killed or stopped, or its host was lost|-|n1|from"},
		"the clock has gone back":  {cluster.Run{Node: "n1", Ended: true, Started: end, OncePer: hour}, start, false, "exit status 0|0s|n1|from"},
	} {
		read := cluster.Stored[cluster.Run]{Exists: true, Record: c.run, Stat: cluster.Stat{Time: c.at}}
		var got []string
		for _, cell := range lastRunOf(read, c.leads).cells()[1:] {
			got = append(got, fmt.Sprint(cell))
		}
		if text := strings.Join(got, "|"); !strings.HasPrefix(text, c.want) {
			t.Errorf("%s: %s, want %s", name, text, c.want)
		}
		if next := lastRunOf(read, c.leads).Next; next != nil && !next.Equal(cluster.StartOf(read).Add(time.Hour)) {
			t.Errorf("%s: the next run at %s", name, next)
		}
	}
}
