package guard

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestStopSendsSignal(t *testing.T) {
	t.Parallel()
	fx, d := startDaemon(t)
	call[time.Duration](d, "SetLease", time.Hour)
	opt := fx.shell("trap 'exit 7' USR1; echo $$ >$D/up; while :; do sleep 0.01; done")
	opt.StopSignal = syscall.SIGUSR1
	pid := call[int](d, "Start", opt)
	if up := fx.pidFromFile("up"); up != pid {
		t.Errorf("process %d runs, but %d was reported", up, pid)
	}
	call[int](d, "Stop", testTimeout)
	call[int](d, "Stop", testTimeout)
	if e := call[ExitInfo](d, "Dead", 0); e.Status != "exited with status 7" {
		t.Error(e.Status)
	}
	call[int](d, "Kill", 0) // has no effect after the death
	call[int](d, "Start", fx.shell("exit 0"))
	if e := call[ExitInfo](d, "Dead", 0); e.Status != StatusSuccess {
		t.Error(e.Status)
	}
}

// All processes of the work are killed. Each script writes the pids of processes that have to die to $D/1 and, if hidden is set,
// to $D/2.
func TestAllOfWorkIsKilled(t *testing.T) {
	t.Parallel()
	const (
		killed     = "was killed by signal 9 (killed)"
		terminated = "was killed by signal 15 (terminated)"

		loop  = "while :; do sleep 0.01; done"
		leave = `(setsid sh -c 'sh -c "echo \$\$ >$D/2; exec sleep 1000" &' &)` // without a parent, in a new session
	)
	for name, c := range map[string]struct {
		script  string
		hidden  bool
		request string
		grace   time.Duration
		status  string
	}{
		"ignores TERM":                     {script: "trap '' TERM; echo $$ >$D/1; " + loop, request: "Stop", grace: 50 * time.Millisecond, status: killed},
		"its child ignores TERM":           {script: "(trap '' TERM; sh -c 'echo $$ >$D/1; " + loop + "') & wait", request: "Stop", grace: 50 * time.Millisecond, status: terminated},
		"leaves a child behind":            {script: "sh -c 'echo $$ >$D/1; exec sleep 1000' & until [ -s $D/1 ]; do sleep 0.01; done; exit 3", status: "exited with status 3"},
		"ends on TERM, its child does not": {script: "trap 'exit 0' TERM; (trap '' TERM; sh -c 'echo $$ >$D/1; exec sleep 1000') & " + loop, request: "Stop", grace: time.Hour, status: "exited with status 0"},
		"no grace":                         {script: "echo $$ >$D/1; exec sleep 1000", request: "Stop", status: killed},
		"killed":                           {script: "echo $$ >$D/1; exec sleep 1000", request: "Kill", status: killed},
		"a child in another session":       {script: "setsid sh -c 'echo $$ >$D/1; exec sleep 1000' & " + loop, request: "Kill", status: killed},
		"a detached process, killed":       {script: leave + "; echo $$ >$D/1; " + loop, hidden: true, request: "Kill", status: killed},
		"a detached process, stopped":      {script: leave + "; echo $$ >$D/1; " + loop, hidden: true, request: "Stop", grace: time.Hour, status: terminated},
		"a detached process, left behind":  {script: leave + "; echo $$ >$D/1; until [ -s $D/2 ]; do sleep 0.01; done", hidden: true, status: "exited with status 0"},
	} {
		for _, by := range allContainments {
			t.Run(name+", "+string(by), func(t *testing.T) {
				t.Parallel()
				fx, d := startDaemon(t, "CONTAINMENT="+string(by))
				call[time.Duration](d, "SetLease", time.Hour)
				call[int](d, "Start", fx.shell(c.script))
				var pids []int
				if c.request != "" { // otherwise they are dead before their pids can be read
					pids = append(pids, fx.pidFromFile("1"))
					if c.hidden {
						pids = append(pids, fx.pidFromFile("2"))
					}
				}
				switch c.request {
				case "Stop":
					call[int](d, "Stop", c.grace)
				case "Kill":
					call[int](d, "Kill", 0)
				}
				e := call[ExitInfo](d, "Dead", 0)
				for _, pid := range pids {
					if alive(pid) {
						t.Errorf("process %d is still alive", pid)
					}
				}
				if len(e.StillAlive) > 0 || e.Status != c.status {
					t.Errorf("%+v", e)
				}
			})
		}
	}
}

// A stop continues a stopped process, which could not handle the signal otherwise.
func TestStopContinuesStoppedProcess(t *testing.T) {
	t.Parallel()
	fx, d := startDaemon(t)
	call[time.Duration](d, "SetLease", time.Hour)
	pid := call[int](d, "Start", fx.shell("kill -STOP $$; exec sleep 1000"))
	eventually(t, "the stop", func() bool { return strings.Contains(read(fmt.Sprintf("/proc/%d/stat", pid)), ") T ") })
	call[int](d, "Stop", time.Hour)
	if e := call[ExitInfo](d, "Dead", 0); e.Status != "was killed by signal 15 (terminated)" {
		t.Errorf("%+v", e)
	}
}

func TestCapture(t *testing.T) {
	t.Parallel()
	fx, d := startDaemon(t)
	call[time.Duration](d, "SetLease", time.Hour)
	run := func(script string) ExitInfo {
		opt := fx.shell(script)
		opt.Capture = true
		call[int](d, "Start", opt)
		return call[ExitInfo](d, "Dead", 0)
	}
	if e := run("echo to stdout; echo to stderr >&2; exit 4"); e.Output != "to stdout\nto stderr\n" || e.Status != "exited with status 4" {
		t.Errorf("%+v", e)
	}
	if e := run("head -c 300000 /dev/zero | tr '\\0' x"); e.Output != strings.Repeat("x", maxOutput) || e.Status != StatusSuccess {
		t.Errorf("%d bytes, %s", len(e.Output), e.Status)
	}
	call[int](d, "Start", fx.shell("echo passed on"))
	if e := call[ExitInfo](d, "Dead", 0); e.Output != "" || !strings.Contains(read(filepath.Join(fx.dir, "log")), "passed on\n") {
		t.Errorf("%+v", e)
	}
}

// The error of a failed start names the program.
func TestFailedStart(t *testing.T) {
	t.Parallel()
	fx, d := startDaemon(t)
	call[time.Duration](d, "SetLease", time.Hour)
	plain, broken := filepath.Join(fx.dir, "plain"), filepath.Join(fx.dir, "broken")
	put(t, plain, "")
	if err := os.WriteFile(broken, []byte("#!/no/such/interpreter\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"/no/such/program", "no-such-program", plain, broken} {
		if _, err := tryCall[int](d, "Start", Spec{Argv: []string{program}}); err == nil || !strings.Contains(err.Error(), program) {
			t.Errorf("%s: %v", program, err)
		}
	}
	opt := fx.shell("true")
	opt.Dir = "/no/such/directory"
	if _, err := tryCall[int](d, "Start", opt); err == nil {
		t.Error("started in a directory that does not exist")
	}
	call[int](d, "Start", fx.shell("exit 0")) // the guard still works
	if e := call[ExitInfo](d, "Dead", 0); e.Status != StatusSuccess {
		t.Error(e.Status)
	}
}

// The work gets its directory, environment and arguments as specified, and nothing else.
func TestWorkGetsWhatIsSpecified(t *testing.T) {
	t.Parallel()
	fx, d := startDaemon(t)
	call[time.Duration](d, "SetLease", time.Hour)
	opt := fx.shell(`pwd; env | sort; echo "$0 $1"; cat`) // cat shows that there is no input
	opt.Argv = append(opt.Argv, "name", "an argument")
	opt.Dir, opt.Capture, opt.Env = "/", true, []string{"PATH=" + os.Getenv("PATH"), "ZKELECTD_TERM=7"}
	call[int](d, "Start", opt)
	if e := call[ExitInfo](d, "Dead", 0); e.Output != "/\nPATH="+os.Getenv("PATH")+"\nPWD=/\nZKELECTD_TERM=7\nname an argument\n" {
		t.Errorf("%+v", e)
	}
}

// leaked matches what guard and keeper have open in the output of ls. Others of this host may let the tests inherit files, too.
var leaked = regexp.MustCompile(` 4 -> |socket:|anon_inode|[1-9]\d* -> /memfd:|/cgroup|/children`)

// Work inherits no open files: with a socket to the guard or to a server it could act as the daemon. Guard and daemon do not
// leak any, either.
func TestNoDescriptorLeaks(t *testing.T) {
	t.Parallel()
	_, socket := newFakeServiceManager(t)
	fx, d := startDaemon(t, socket)
	call[time.Duration](d, "SetLease", time.Hour)
	var guardFiles, daemonFiles int
	for i := range 20 {
		opt := fx.shell("ls -l /proc/$$/fd")
		opt.Capture, opt.Input = i%2 == 0, []byte("input")
		call[int](d, "Start", opt)
		if e := call[ExitInfo](d, "Dead", 0); opt.Capture && (e.Output == "" || leaked.MatchString(e.Output)) {
			t.Fatalf("open files of the work:\n%s", e.Output)
		}
		if i == 1 {
			guardFiles, daemonFiles = d.openFiles()
		}
	}
	// What the end of the last work has still open is closed soon.
	eventually(t, "guard and daemon have no more open files than before", func() bool {
		guardNow, daemonNow := d.openFiles()
		return guardNow <= guardFiles && daemonNow <= daemonFiles
	})
}
