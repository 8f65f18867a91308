package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/procinfo"
	"zkelectd/internal/testhelper"
)

// patience is how long a test waits for what has to happen: less where each of many changes of the code is tried, most of
// which keep it from happening (scripts/mutants).
var testTimeout = func() time.Duration {
	if os.Getenv("MUTANT") != "" {
		return 15 * time.Second
	}
	return time.Minute
}()

// house is one guard with its daemon.
type fixture struct {
	t          *testing.T
	dir        string
	control    net.Listener
	cmd        *exec.Cmd
	exited     chan struct{}
	startTimes map[int]uint64 // when processes of the work started: their pids may be used again
}

// newHouse starts a guard. Whatever it has brought about is gone after the test.
func startGuard(t *testing.T, env ...string) *fixture {
	t.Helper()
	return startGuardLoggingTo(t, nil, env...)
}

// newHouseLogging starts a guard with a log of the test's own, or nil for a file.
func startGuardLoggingTo(t *testing.T, out *os.File, env ...string) *fixture {
	t.Helper()
	dir, err := os.MkdirTemp("", "guard") // short enough for the name of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "USER_ID=") }) {
		copied := filepath.Join(dir, "program") // another user may not get at the program that the tests are
		copyProgram(t, copied)
		program = copied
	}
	if err := os.Symlink(program, filepath.Join(dir, "daemon")); err != nil {
		t.Fatal(err)
	}
	h := &fixture{t: t, dir: dir, exited: make(chan struct{}), startTimes: make(map[int]uint64)}
	if h.control, err = net.Listen("unix", filepath.Join(dir, "control")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.control.Close() })
	if out == nil {
		if out, err = os.Create(filepath.Join(dir, "log")); err != nil {
			t.Fatal(err)
		}
		defer out.Close()
	}
	h.cmd = exec.Command(program)
	h.cmd.Env = append(os.Environ(), "ROLE=guard", "RESPAWN=yes", "GORACE=atexit_sleep_ms=0", "FIXTURE_DIR="+dir)
	h.cmd.Env = append(h.cmd.Env, env...)
	for _, kv := range env {
		if id, ok := strings.CutPrefix(kv, "USER_ID="); ok {
			user, err := strconv.Atoi(id)
			if err != nil {
				t.Fatal(err)
			}
			h.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(user), Gid: uint32(user)}}
			if err := errors.Join(os.Chown(dir, user, user), os.Chmod(dir, 0o755), os.Chmod(filepath.Join(dir, "control"), 0o777)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if slices.Contains(env, "FIRST=yes") { // as in a container
		h.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	}
	h.cmd.Stdout, h.cmd.Stderr = out, out
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the guard, which the cleanup kills
		h.cmd.Wait()
		close(h.exited)
	}()
	t.Cleanup(h.cleanUp)
	return h
}

func (h *fixture) cleanUp() {
	log := read(filepath.Join(h.dir, "log"))
	if testhelper.HasRace(log) {
		h.t.Error("a data race")
	}
	if h.t.Failed() {
		h.t.Logf("the log says\n%s", log)
	}
	eventually(h.t, "the end of all", func() bool {
		all := append(pidsWithEnv([]string{"FIXTURE_DIR=" + h.dir}), pidsWithEnv([]string{workEnv(h.dir)})...)
		for _, pid := range all {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		return len(all) == 0
	})
	<-h.exited
}

// remote is the test's hold on one run of the daemon.
type remoteDaemon struct {
	*fixture
	conn *rpc.Client
	pid  int
}

// daemon is the next run of the daemon.
func (h *fixture) nextDaemon() *remoteDaemon {
	h.t.Helper()
	h.control.(*net.UnixListener).SetDeadline(time.Now().Add(testTimeout))
	conn, err := h.control.Accept()
	if err != nil {
		h.t.Fatalf("no daemon: %v", err)
	}
	d := &remoteDaemon{fixture: h, conn: rpc.NewClient(conn)}
	h.t.Cleanup(func() { d.conn.Close() })
	d.pid = call[int](d, "Pid", 0)
	return d
}

// ask has the daemon do something and returns the answer.
func call[T any](d *remoteDaemon, method string, arg any) T {
	d.t.Helper()
	answer, err := tryCall[T](d, method, arg)
	if err != nil {
		d.t.Fatalf("%s: %v", method, err)
	}
	return answer
}

func tryCall[T any](d *remoteDaemon, method string, arg any) (T, error) {
	var answer T
	call := d.conn.Go("Daemon."+method, arg, &answer, make(chan *rpc.Call, 1))
	limit := time.NewTimer(testTimeout)
	defer limit.Stop()
	select {
	case <-call.Done:
		return answer, call.Error
	case <-limit.C:
		var none T
		return none, errors.New("no answer")
	}
}

// shell is work that runs a script. In it $D is where it may leave its pids.
func (h *fixture) shell(script string) WorkOptions {
	return WorkOptions{Command: []string{"sh", "-c", script}, Env: h.env()}
}

func (h *fixture) env() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "D=" + h.dir, "ZKELECTD_TERM=7", workEnv(h.dir)}
}

// work is running work with a lease: its main process, and one that has left the group and lost its parents.
func (d *remoteDaemon) startWork(lease time.Duration) (deadline time.Duration, pids []int) {
	d.t.Helper()
	call[time.Duration](d, "SetLease", time.Hour) // on a busy machine it takes its time to start
	main := call[int](d, "Start", d.shell(`(setsid sh -c 'sh -c "echo \$\$ >$D/hidden; exec sleep 1000" &' &) ; exec sleep 1000`))
	pids = []int{main, d.hostPidFromFile("hidden")}
	d.rememberStart(pids...)
	return d.setConfirmedLease(lease), pids
}

// confirmed gives the work a lease, and returns its end once guard and keeper know it: the guard tells the keeper first.
func (d *remoteDaemon) setConfirmedLease(lease time.Duration) (deadline time.Duration) {
	d.t.Helper()
	deadline = call[time.Duration](d, "SetLease", lease)
	eventually(d.t, "the confirmation", func() bool { return call[time.Duration](d, "Confirmed", 0) == deadline })
	return deadline
}

// wrote is the pid in a file, once it is there.
func (h *fixture) pidFromFile(name string) int {
	h.t.Helper()
	var pid int
	eventually(h.t, name, func() bool {
		text := read(filepath.Join(h.dir, name))
		pid, _ = strconv.Atoi(strings.TrimSpace(text))
		return pid != 0 && strings.HasSuffix(text, "\n")
	})
	return pid
}

// seen is the pid that a process of the work has here, from the one in a file, which is that in its own namespace.
func (h *fixture) hostPidFromFile(name string) (pid int) {
	h.t.Helper()
	own := h.pidFromFile(name)
	eventually(h.t, name, func() bool {
		for _, p := range pidsWithEnv([]string{workEnv(h.dir)}) {
			if innermostPid(p) == own {
				pid = p
			}
		}
		return pid != 0
	})
	return pid
}

// keeper is the keeper's pid.
func (h *fixture) keeperPid() (pid int) {
	h.t.Helper()
	eventually(h.t, "the keeper", func() bool {
		for _, p := range childrenOf(h.cmd.Process.Pid) {
			if slices.Contains(commandLine(p), keeperArgument) {
				pid = p
			}
		}
		return pid != 0
	})
	return pid
}

// contained are all containments.
var allContainments = []Containment{CgroupContainment, PidnsContainment, KeeperContainment}

// note remembers processes that are alive.
func (h *fixture) rememberStart(pids ...int) {
	for _, pid := range pids {
		if s, err := procinfo.ReadStat(pid); err == nil {
			h.startTimes[pid] = s.Started
		}
	}
}

// alive reports whether a process lives; one that was noted is told from others that get its pid.
func (h *fixture) alive(pid int) bool {
	s, err := procinfo.ReadStat(pid)
	born, noted := h.startTimes[pid]
	return err == nil && !s.Ended() && (!noted || s.Started == born)
}

// dead waits until none of the processes is left, and returns when that was.
func (h *fixture) waitDead(pids ...int) time.Duration {
	h.t.Helper()
	for _, pid := range pids {
		eventually(h.t, "the death of "+strconv.Itoa(pid), func() bool { return !h.alive(pid) })
	}
	return boottime.Now()
}

// lives checks that all of the processes work until a time.
func (h *fixture) checkAliveUntil(until time.Duration, pids ...int) {
	h.t.Helper()
	eventually(h.t, "the time", func() bool { return boottime.Now() > until })
	for _, pid := range pids {
		if !alive(pid) {
			h.t.Errorf("%d is dead", pid)
		}
	}
}

// status is the guard's exit status, or -1 for a signal.
func (h *fixture) guardExitStatus() int {
	h.t.Helper()
	select {
	case <-h.exited:
	case <-time.After(testTimeout):
		h.t.Fatal("the guard does not end")
	}
	return h.cmd.ProcessState.ExitCode()
}

// signal sends the guard a signal. A stop has come into effect then: as long as one thread alone has been told, another may
// still confirm a lease.
func (h *fixture) signalGuard(sig syscall.Signal) {
	h.t.Helper()
	h.cmd.Process.Signal(sig)
	if sig == syscall.SIGSTOP {
		eventually(h.t, "the stop", func() bool { return !isRunning(h.cmd.Process.Pid) })
	}
}

// stop stops processes; it has come into effect when it returns.
func (h *fixture) stopProcesses(pids ...int) {
	h.t.Helper()
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGSTOP)
	}
	for _, pid := range pids {
		eventually(h.t, "the stop", func() bool { return !isRunning(pid) })
	}
}

// killAtOnce kills processes none of which sees another die. The guard must be the last: with it goes what its children's
// process groups have for a parent in the session, and the kernel wakes those that are stopped in such a group.
func (h *fixture) killAtOnce(pids ...int) {
	h.t.Helper()
	h.stopProcesses(pids...)
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// running reports whether a thread of a process is neither stopped nor dead.
func isRunning(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // the pattern is in order
	return slices.ContainsFunc(threads, func(file string) bool {
		_, state, _ := strings.Cut(read(file), ") ")
		return state != "" && !strings.ContainsRune("TtZX", rune(state[0]))
	})
}

// burials are the sessions closed so far.
func (h *fixture) closedSessions() []closedSession {
	h.t.Helper()
	var all []closedSession
	for line := range strings.Lines(read(filepath.Join(h.dir, "closed"))) {
		var b closedSession
		if err := json.Unmarshal([]byte(line), &b); err != nil {
			h.t.Fatal(err)
		}
		all = append(all, b)
	}
	return all
}

// credentials are the session of every daemon here.
func (h *fixture) credentials() Credentials {
	return Credentials{Servers: []string{"a:1", "b:2"}, ID: 0x1234, Password: []byte("secret"), Timeout: 4 * time.Second, File: filepath.Join(h.dir, "session")}
}
