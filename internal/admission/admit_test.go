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
)

// daemonUser is who the daemon is, otherUser somebody else.
const (
	daemonUser = 4711
	otherUser  = 4712
)

// scene is a host with a unit that is about to start.
type scene struct {
	t       *testing.T
	dir     string
	program string
	socket  string
	files   string
	cgroup  string
	answer  Answer
}

// cgroups is where the version 2 hierarchy is mounted.
func cgroups(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("findmnt", "--noheadings", "--types", "cgroup2", "--output", "TARGET", "--first-only").Output()
	if err != nil {
		t.Fatalf("there are no control groups of version 2: %v", err)
	}
	return strings.TrimSpace(string(out))
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{t: t, dir: publicDir(t)}
	s.program, s.socket, s.files = filepath.Join(s.dir, "zkelectd"), filepath.Join(s.dir, "run", "unit.sock"), filepath.Join(s.dir, "files")
	copyProgram(t, s.program)
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
	s.answer = Answer{Group: "/" + name, Fencing: fencing}
	return s
}

// how says what is odd about a daemon.
type how struct {
	lie           string
	user          uint32
	guard, daemon string
	rootGuard     bool
}

// daemon starts a guard and its daemon, and returns when they answer, or do what they do instead.
func (s *scene) daemon(h how) {
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
	said := bufio.NewReader(out)
	s.t.Cleanup(func() {
		in.Close()
		said.ReadString(0) // all of them have ended then
		cmd.Wait()
	})
	if line, err := said.ReadString('\n'); err != nil || strings.TrimSpace(line) != "ready <nil>" {
		s.t.Fatalf("the daemon says %q, %v", line, err)
	}
	if h.lie == "guard is dead" {
		if _, err := cmd.Process.Wait(); err != nil { // cmd.Wait would hang up on the daemon
			s.t.Fatal(err)
		}
	}
}

// admit is the start of the unit. It returns what that says; nothing if the unit is admitted.
func (s *scene) admit() string {
	s.t.Helper()
	dir, err := os.Open(s.cgroup)
	if err != nil {
		s.t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command(s.program)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", "ROLE=admit", "SOCKET="+s.socket, "FILES="+s.files)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	began := time.Now()
	out, err := cmd.CombinedOutput()
	if took := time.Since(began); took > 10*Timeout {
		s.t.Errorf("it took %s", took)
	}
	if (err == nil) != (len(out) == 0) {
		s.t.Errorf("%v, and it says %q", err, out)
	}
	return string(out)
}

// environment is the unit's environment file; empty if there is none.
func (s *scene) environment() string {
	data, err := os.ReadFile(filepath.Join(s.files, file(filepath.Base(s.cgroup))))
	if err != nil && !os.IsNotExist(err) {
		s.t.Error(err)
	}
	return string(data)
}

// entrusted is the user who may kill the unit.
func (s *scene) entrusted() uint32 {
	info, err := os.Stat(filepath.Join(s.cgroup, "cgroup.kill"))
	if err != nil {
		s.t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Uid
}

// refused makes sure that the unit does not start, for a reason, and that nothing has happened.
func (s *scene) refused(reason string) {
	s.t.Helper()
	if said := s.admit(); !strings.Contains(said, reason) {
		s.t.Errorf("it says %q, and not %q", said, reason)
	}
	if text := s.environment(); text != "" || s.entrusted() != 0 {
		s.t.Errorf("the environment is %q, and user %d may kill the unit", text, s.entrusted())
	}
}

func TestUnitIsAdmitted(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.refused("this host does not lead: nobody answers at " + s.socket)
	s.daemon(how{})
	if said := s.admit(); said != "" {
		t.Fatal(said)
	}
	const want = `ZKELECTD_NODE="n1"
ZKELECTD_SITE="Zürich west"
ZKELECTD_GROUP="cluster"
ZKELECTD_TERM="7"
ZKELECTD_ROOT="/cluster"
`
	if got := s.environment(); got != want {
		t.Errorf("the environment is\n%s", got)
	}
	info, err := os.Lstat(filepath.Join(s.files, file(filepath.Base(s.cgroup))))
	if err != nil || info.Mode() != 0o600 || info.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("%v, %v", info, err)
	}
	if s.entrusted() != daemonUser {
		t.Errorf("user %d may kill the unit", s.entrusted())
	}
	// A package's upgrade replaces the program, and leaves the service alone.
	copyProgram(t, s.program)
	if said := s.admit(); said != "" {
		t.Errorf("after an upgrade: %s", said)
	}
}

// What the daemon's user can put where the socket is neither holds up the start of the unit nor gets through.
func TestUnitIsNotAdmittedByWhatIsNotTheDaemon(t *testing.T) {
	t.Parallel()
	for lie, reason := range map[string]string{
		"process 1":       "process 1 is no guard",
		"a reused pid":    "the guard has ended, and process ",
		"itself reused":   "the daemon has ended, and process ",
		"another daemon":  "answers for process",
		"its own guard":   "is not below process",
		"guard is dead":   "this host does not lead: the guard, process ",
		"silence":         "does not answer at ",
		"a FIFO":          "is no socket",
		"a link":          "is no socket",
		"a file":          "is no socket",
		"no end":          "it says more than 16384 bytes",
		"rubbish":         "it says nothing that 'zkelectd admit' understands",
		"a newer version": "restart zkelectd after an upgrade",
	} {
		t.Run(lie, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.daemon(how{lie: lie})
			s.refused(reason)
		})
	}
}

func TestUnitIsNotAdmittedByAnotherProgramOrUser(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	other := filepath.Join(s.dir, "other")
	copyProgram(t, other)
	for _, test := range []struct {
		how
		reason string
	}{
		{how{daemon: other}, "it runs " + other + ", and not " + s.program},
		{how{guard: other}, "it runs " + other + ", and not " + s.program},
		{how{rootGuard: true}, fmt.Sprintf("its user ids are [0 0 0 0], and not %d", daemonUser)},
		{how{user: otherUser}, fmt.Sprintf("runs as user %d, and ", otherUser)},
	} {
		t.Run(test.reason, func(t *testing.T) {
			s := newScene(t)
			s.program = filepath.Join(filepath.Dir(other), "zkelectd")
			if test.user != 0 {
				if err := os.Chmod(filepath.Dir(s.socket), 0o777); err != nil {
					t.Fatal(err)
				}
			}
			s.daemon(test.how)
			s.refused(test.reason)
			if said := s.admit(); !strings.Contains(said, "find out who made it (ss -xlp), and restart zkelectd") {
				t.Errorf("it does not say what to do: %s", said)
			}
		})
	}
}

// Only plain text gets into the environment.
func TestUnitIsNotAdmittedWithHostileValues(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"a\nLD_PRELOAD=/run/evil.so", `a"b`, "a'b", `a\b`, "a`b", "a$b", "a\x00b", "a\x1bb", "a\u0085b", "a\u2028b", "a\u202eb", strings.Repeat("a", 1025)} {
		s := newScene(t)
		s.answer.Fencing.Site = value
		s.daemon(how{})
		s.refused("ZKELECTD_SITE ")
	}
	s := newScene(t)
	s.answer.Fencing.Term = "7 8"
	s.daemon(how{})
	s.refused(`the term "7 8" is not a positive number`)
}

// The guard would kill another unit.
func TestAnotherUnitIsNotAdmitted(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	own := s.answer.Group
	s.answer.Group = "/other.service"
	s.daemon(how{})
	s.refused(fmt.Sprintf("zkelectd leads with %q, and this is %q: correct child.unit", "/other.service", own))
}
