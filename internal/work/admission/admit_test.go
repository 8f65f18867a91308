package admission

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/test/testhelper"
)

// daemonUser is the user ID of the daemon, otherUser that of another user.
const (
	daemonUser = 4711
	otherUser  = 4712
)

// testHost is a host with a unit that is about to start.
type testHost struct {
	t       *testing.T
	dir     string
	program string
	socket  string
	envDir  string
	cgroup  string
	answer  Answer
}

// cgroups returns where the version 2 hierarchy is mounted.
func cgroups(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("findmnt", "--noheadings", "--types", "cgroup2", "--output", "TARGET", "--first-only").Output()
	if err != nil {
		t.Fatalf("cgroup v2 is not mounted: %v", err)
	}
	return strings.TrimSpace(string(out))
}

func newTestHost(t *testing.T) *testHost {
	t.Helper()
	s := &testHost{t: t, dir: testhelper.PublicDir(t)}
	s.program, s.socket, s.envDir = filepath.Join(s.dir, "zkelectd"), filepath.Join(s.dir, "run", "unit.sock"), filepath.Join(s.dir, "files")
	testhelper.CopyProgram(t, s.program)
	run := filepath.Dir(s.socket)
	if err := os.Mkdir(run, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(run, daemonUser, daemonUser); err != nil {
		t.Fatalf("run the tests as root: %v", err)
	}
	name := filepath.Base(s.dir) + ".service"
	s.cgroup = filepath.Join(cgroups(t), name)
	if err := os.Mkdir(s.cgroup, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(s.cgroup) })
	s.answer = Answer{Group: "/" + name, Fencing: testFencing}
	return s
}

// daemonVariant describes how a daemon differs from a genuine one.
type daemonVariant struct {
	lie           string
	user          uint32
	guard, daemon string
	rootGuard     bool
}

// startDaemon starts a guard and its daemon, and returns when they are ready.
func (s *testHost) startDaemon(h daemonVariant) {
	s.t.Helper()
	answer, err := json.Marshal(s.answer)
	if err != nil {
		s.t.Fatal(err)
	}
	program := func(other string) string {
		if other == "" {
			return s.program
		}
		return other
	}
	if h.user == 0 {
		h.user = daemonUser
	}
	cmd := exec.Command(program(h.guard))
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", "ROLE=guard", "DAEMON="+program(h.daemon), "SOCKET="+s.socket, "LIE="+h.lie, "ANSWER="+string(answer))
	if h.rootGuard {
		cmd.Env = append(cmd.Env, fmt.Sprintf("DAEMON_USER=%d", h.user))
	} else {
		cmd.SysProcAttr = as(h.user)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	output := bufio.NewReader(out)
	s.t.Cleanup(func() {
		in.Close()
		output.ReadString(0) // returns when guard and daemon have exited
		cmd.Wait()
	})
	if line, err := output.ReadString('\n'); err != nil || strings.TrimSpace(line) != "ready <nil>" {
		s.t.Fatalf("the daemon is not ready: %q, %v", line, err)
	}
	if h.lie == "guard is dead" {
		if _, err := cmd.Process.Wait(); err != nil { // cmd.Wait would close the pipes, and the daemon would exit
			s.t.Fatal(err)
		}
	}
}

// startUnit runs Admit as a process of the unit. It returns the error message; empty if the unit is admitted.
func (s *testHost) startUnit() string {
	s.t.Helper()
	dir, err := os.Open(s.cgroup)
	if err != nil {
		s.t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command(s.program)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", "ROLE=admit", "SOCKET="+s.socket, "FILES="+s.envDir)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	began := time.Now()
	out, err := cmd.CombinedOutput()
	if took := time.Since(began); took > 10*Timeout {
		s.t.Errorf("it took %s", took)
	}
	if (err == nil) != (len(out) == 0) {
		s.t.Errorf("error %v with output %q", err, out)
	}
	return string(out)
}

// environmentFile returns the content of the unit's environment file; empty if there is none.
func (s *testHost) environmentFile() string {
	data, err := os.ReadFile(filepath.Join(s.envDir, environmentFileName(filepath.Base(s.cgroup))))
	if err != nil && !os.IsNotExist(err) {
		s.t.Error(err)
	}
	return string(data)
}

// killGrantedTo returns the user who may kill the unit.
func (s *testHost) killGrantedTo() uint32 {
	info, err := os.Stat(filepath.Join(s.cgroup, "cgroup.kill"))
	if err != nil {
		s.t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Uid
}

// checkRefused checks that the unit is refused for the given reason, and that nothing was changed.
func (s *testHost) checkRefused(reason string) {
	s.t.Helper()
	if message := s.startUnit(); !strings.Contains(message, reason) {
		s.t.Errorf("got error %q, want %q", message, reason)
	}
	if text := s.environmentFile(); text != "" || s.killGrantedTo() != 0 {
		s.t.Errorf("the environment is %q, and user %d may kill the unit", text, s.killGrantedTo())
	}
}

func TestUnitIsAdmitted(t *testing.T) {
	t.Parallel()
	s := newTestHost(t)
	s.checkRefused("this host does not lead: nothing listens at " + s.socket)
	s.startDaemon(daemonVariant{})
	if message := s.startUnit(); message != "" {
		t.Fatal(message)
	}
	const want = `ZKELECTD_NODE="n1"
ZKELECTD_SITE="Zürich west"
ZKELECTD_GROUP="cluster"
ZKELECTD_TERM="7"
ZKELECTD_ROOT="/cluster"
`
	if got := s.environmentFile(); got != want {
		t.Errorf("the environment is\n%s", got)
	}
	info, err := os.Lstat(filepath.Join(s.envDir, environmentFileName(filepath.Base(s.cgroup))))
	if err != nil || info.Mode() != 0o600 || info.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("%v, %v", info, err)
	}
	if s.killGrantedTo() != daemonUser {
		t.Errorf("user %d may kill the unit", s.killGrantedTo())
	}
	// An upgrade of the package replaces the program and does not restart the service.
	testhelper.CopyProgram(t, s.program)
	if message := s.startUnit(); message != "" {
		t.Errorf("after an upgrade: %s", message)
	}
}

// Whatever the daemon's user puts in the place of the socket neither blocks the start of the unit nor is accepted.
func TestUnitIsRefusedWithoutGenuineDaemon(t *testing.T) {
	t.Parallel()
	for lie, reason := range map[string]string{
		"process 1":       "process 1 cannot be a guard",
		"a reused pid":    "the guard has ended, and pid ",
		"itself reused":   "the daemon has ended, and pid ",
		"another daemon":  "answered, but names process",
		"its own guard":   " is a child of process ",
		"guard is dead":   "this host does not lead: the guard (process ",
		"silence":         "does not answer at ",
		"a FIFO":          "is not a socket",
		"a link":          "is not a socket",
		"a file":          "is not a socket",
		"no end":          "its answer is longer than 16384 bytes",
		"rubbish":         "admit does not understand its answer",
		"a newer version": "restart zkelectd after an upgrade",
	} {
		t.Run(lie, func(t *testing.T) {
			t.Parallel()
			s := newTestHost(t)
			s.startDaemon(daemonVariant{lie: lie})
			s.checkRefused(reason)
		})
	}
}

func TestUnitIsRefusedForAnotherProgramOrUser(t *testing.T) {
	t.Parallel()
	s := newTestHost(t)
	other := filepath.Join(s.dir, "other")
	testhelper.CopyProgram(t, other)
	for _, test := range []struct {
		daemonVariant
		reason string
	}{
		{daemonVariant{daemon: other}, "it runs " + other + " instead of " + s.program},
		{daemonVariant{guard: other}, "it runs " + other + " instead of " + s.program},
		{daemonVariant{rootGuard: true}, fmt.Sprintf("its user IDs are [0 0 0 0] instead of %d", daemonUser)},
		{daemonVariant{user: otherUser}, fmt.Sprintf("runs as user %d, but ", otherUser)},
	} {
		t.Run(test.reason, func(t *testing.T) {
			s := newTestHost(t)
			s.program = filepath.Join(filepath.Dir(other), "zkelectd")
			if test.user != 0 {
				if err := os.Chmod(filepath.Dir(s.socket), 0o777); err != nil {
					t.Fatal(err)
				}
			}
			s.startDaemon(test.daemonVariant)
			s.checkRefused(test.reason)
			if message := s.startUnit(); !strings.Contains(message, "find out which process created the socket (ss -xlp), and restart zkelectd") {
				t.Errorf("the error does not say what to do: %s", message)
			}
		})
	}
}

// Values that are not plain text are refused, as they could inject variables into the environment file. Package workenv tests
// which these are.
func TestUnitIsRefusedWithHostileValues(t *testing.T) {
	t.Parallel()
	s := newTestHost(t)
	s.answer.Fencing.Site = "a\nLD_PRELOAD=/run/evil.so"
	s.startDaemon(daemonVariant{})
	s.checkRefused("ZKELECTD_SITE ")
}

// If another unit were admitted, the guard would kill the wrong one.
func TestAnotherUnitIsRefused(t *testing.T) {
	t.Parallel()
	s := newTestHost(t)
	own := s.answer.Group
	s.answer.Group = "/other.service"
	s.startDaemon(daemonVariant{})
	s.checkRefused(fmt.Sprintf("zkelectd leads with %q, but this unit is %q: correct child.unit", "/other.service", own))
}
