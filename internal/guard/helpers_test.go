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

	"golang.org/x/sys/unix"

	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/sys/procinfo"
	"zkelectd/internal/test/testhelper"
)

// testTimeout is how long a test waits for something that has to happen. It is shorter in mutation tests (scripts/mutants), since
// most mutants keep it from happening.
var testTimeout = func() time.Duration {
	if os.Getenv("MUTANT") != "" {
		return 15 * time.Second
	}
	return time.Minute
}()

// fixture is one guard process with its daemon.
type fixture struct {
	t          *testing.T
	dir        string
	control    net.Listener
	cmd        *exec.Cmd
	exited     chan struct{}
	startTimes map[int]uint64 // when processes of the work started, by pid: pids may be reused
}

// startGuard starts a guard with additional environment variables. All of its processes are killed after the test.
func startGuard(t *testing.T, env ...string) *fixture {
	t.Helper()
	return startGuardLoggingTo(t, nil, env...)
}

// startDaemon starts a guard, and waits for its daemon.
func startDaemon(t *testing.T, env ...string) (*fixture, *remoteDaemon) {
	t.Helper()
	fx := startGuard(t, env...)
	return fx, fx.nextDaemon()
}

// startGuardLoggingTo starts a guard that logs to out, or to a file if out is nil.
func startGuardLoggingTo(t *testing.T, out *os.File, env ...string) *fixture {
	t.Helper()
	dir := testhelper.PublicDir(t)
	program := testProgram(t, dir, env)
	if err := os.Symlink(program, filepath.Join(dir, "daemon")); err != nil {
		t.Fatal(err)
	}
	fx := &fixture{t: t, dir: dir, exited: make(chan struct{}), startTimes: make(map[int]uint64)}
	var err error
	if fx.control, err = net.Listen("unix", filepath.Join(dir, "control")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fx.control.Close() })
	if out == nil {
		if out, err = os.Create(filepath.Join(dir, "log")); err != nil {
			t.Fatal(err)
		}
		defer out.Close()
	}
	fx.cmd = exec.Command(program)
	fx.cmd.Env = append(os.Environ(), "ROLE=guard", "RESPAWN=yes", "FIXTURE_DIR="+dir)
	fx.cmd.Env = append(fx.cmd.Env, env...)
	fx.cmd.SysProcAttr = fx.processAttributes(env)
	fx.cmd.Stdout, fx.cmd.Stderr = out, out
	if err := fx.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the guard, which the cleanup kills
		fx.cmd.Wait()
		close(fx.exited)
	}()
	t.Cleanup(fx.cleanUp)
	return fx
}

// testProgram returns the path of this program, or of a copy of it in dir for a guard that runs as another user.
func testProgram(t *testing.T, dir string, env []string) string {
	t.Helper()
	if slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "USER_ID=") }) {
		program := filepath.Join(dir, "program") // another user may not have access to the test binary
		testhelper.CopyProgram(t, program)
		return program
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// processAttributes returns how to start a guard with these environment variables: as another user (USER_ID=), or as process 1 of
// a PID namespace (PID_ONE=yes).
func (fx *fixture) processAttributes(env []string) *syscall.SysProcAttr {
	fx.t.Helper()
	if slices.Contains(env, "PID_ONE=yes") { // as in a container
		return &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	}
	for _, kv := range env {
		id, ok := strings.CutPrefix(kv, "USER_ID=")
		if !ok {
			continue
		}
		user, err := strconv.Atoi(id)
		if err != nil {
			fx.t.Fatal(err)
		}
		if err := errors.Join(os.Chown(fx.dir, user, user), os.Chmod(fx.dir, 0o755), os.Chmod(filepath.Join(fx.dir, "control"), 0o777)); err != nil {
			fx.t.Fatal(err)
		}
		return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(user), Gid: uint32(user)}}
	}
	return nil
}

// cleanUp kills all processes of the fixture.
func (fx *fixture) cleanUp() {
	log := read(filepath.Join(fx.dir, "log"))
	if fx.t.Failed() {
		fx.t.Logf("log:\n%s", log)
	}
	eventually(fx.t, "the end of all processes", func() bool {
		all := append(pidsWithEnv([]string{"FIXTURE_DIR=" + fx.dir}), pidsWithEnv([]string{workEnv(fx.dir)})...)
		for _, pid := range all {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		return len(all) == 0
	})
	<-fx.exited
}

// remoteDaemon controls one daemon process of a fixture by RPC.
type remoteDaemon struct {
	*fixture
	conn *rpc.Client
	pid  int
}

// nextDaemon waits for the next daemon process to start.
func (fx *fixture) nextDaemon() *remoteDaemon {
	fx.t.Helper()
	fx.control.(*net.UnixListener).SetDeadline(time.Now().Add(testTimeout))
	conn, err := fx.control.Accept()
	if err != nil {
		fx.t.Fatalf("no daemon has started: %v", err)
	}
	d := &remoteDaemon{fixture: fx, conn: rpc.NewClient(conn)}
	fx.t.Cleanup(func() { d.conn.Close() })
	d.pid = call[int](d, "Pid", 0)
	return d
}

// call calls a method of [DaemonRPC] in the daemon and returns the reply. It fails the test on an error.
func call[T any](d *remoteDaemon, method string, arg any) T {
	d.t.Helper()
	reply, err := tryCall[T](d, method, arg)
	if err != nil {
		d.t.Fatalf("%s: %v", method, err)
	}
	return reply
}

// tryCall is call, but returns the error.
func tryCall[T any](d *remoteDaemon, method string, arg any) (T, error) {
	var reply T
	call := d.conn.Go("Daemon."+method, arg, &reply, make(chan *rpc.Call, 1))
	limit := time.NewTimer(testTimeout)
	defer limit.Stop()
	select {
	case <-call.Done:
		return reply, call.Error
	case <-limit.C:
		var zero T
		return zero, errors.New("no reply")
	}
}

// shell returns work that runs a script. The script writes pids to files in the directory $D.
func (fx *fixture) shell(script string) Spec {
	return Spec{Argv: []string{"sh", "-c", script}, Env: fx.env()}
}

func (fx *fixture) env() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "D=" + fx.dir, "ZKELECTD_TERM=7", workEnv(fx.dir)}
}

// startWork starts work and then gives it a lease. It returns the pids of the main process and of one that is in another session
// and has lost its parents.
func (d *remoteDaemon) startWork(lease time.Duration) (deadline time.Duration, pids []int) {
	d.t.Helper()
	call[time.Duration](d, "SetLease", time.Hour) // the start may take long on a busy machine
	main := call[int](d, "Start", d.shell(`(setsid sh -c 'sh -c "echo \$\$ >$D/hidden; exec sleep 1000" &' &) ; exec sleep 1000`))
	pids = []int{main, d.pidFromFile("hidden")}
	d.rememberStart(pids...)
	return d.setConfirmedLease(lease), pids
}

// setConfirmedLease sets the lease and returns its end once guard and keeper know it, or will read it from the board in
// time: the guard confirms it only after it has had the keeper read it.
func (d *remoteDaemon) setConfirmedLease(lease time.Duration) (deadline time.Duration) {
	d.t.Helper()
	deadline = call[time.Duration](d, "SetLease", lease)
	eventually(d.t, "the confirmation", func() bool {
		at := call[time.Duration](d, "Confirmed", 0)
		return at != 0 && at <= deadline
	})
	return deadline
}

// pidFromFile waits for a file in the directory $D and returns the pid in it.
func (fx *fixture) pidFromFile(name string) int {
	fx.t.Helper()
	var pid int
	eventually(fx.t, name, func() bool {
		text := read(filepath.Join(fx.dir, name))
		pid, _ = strconv.Atoi(strings.TrimSpace(text))
		return pid != 0 && strings.HasSuffix(text, "\n")
	})
	return pid
}

// innermostPid returns the pid of a process in its own PID namespace; 0 if it cannot be read.
func innermostPid(pid int) int {
	_, ids, _ := strings.Cut(read(fmt.Sprintf("/proc/%d/status", pid)), "NSpid:")
	ids, _, _ = strings.Cut(ids, "\n")
	fields := strings.Fields(ids)
	if len(fields) == 0 {
		return 0
	}
	inner, _ := strconv.Atoi(fields[len(fields)-1])
	return inner
}

// mountProc mounts a /proc for this PID namespace, so that it shows the pids that its processes have there.
func mountProc() error {
	return errors.Join(unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""))
}

// keeperPid waits for the keeper and returns its pid. Of several it returns one with work.
func (fx *fixture) keeperPid() (pid int) {
	fx.t.Helper()
	eventually(fx.t, "the keeper", func() bool {
		all, _ := childrenOf(fx.cmd.Process.Pid, portionOpened)
		for _, p := range all {
			if below, _ := childrenOf(p, portionOpened); slices.Contains(commandLine(p), keeperArgument) && (pid == 0 || len(below) > 0) {
				pid = p
			}
		}
		return pid != 0
	})
	return pid
}

// allContainments are the containments that the tests run with.
var allContainments = []Containment{CgroupContainment, KeeperContainment}

// rememberStart records when these processes started.
func (fx *fixture) rememberStart(pids ...int) {
	for _, pid := range pids {
		if s, err := procinfo.ReadStat(pid); err == nil {
			fx.startTimes[pid] = s.Started
		}
	}
}

// alive reports whether a process is alive. If its start was recorded, another process with its pid does not count.
func (fx *fixture) alive(pid int) bool {
	s, err := procinfo.ReadStat(pid)
	started, known := fx.startTimes[pid]
	return err == nil && !s.Ended() && (!known || s.Started == started)
}

// waitDead waits until all of the processes are dead, and returns the time.
func (fx *fixture) waitDead(pids ...int) time.Duration {
	fx.t.Helper()
	for _, pid := range pids {
		eventually(fx.t, "the death of "+strconv.Itoa(pid), func() bool { return !fx.alive(pid) })
	}
	return boottime.Now()
}

// checkAliveUntil checks that all of the processes are still alive at a time.
func (fx *fixture) checkAliveUntil(until time.Duration, pids ...int) {
	fx.t.Helper()
	eventually(fx.t, "the time", func() bool { return boottime.Now() > until })
	for _, pid := range pids {
		if !alive(pid) {
			fx.t.Errorf("process %d is dead", pid)
		}
	}
}

// guardExitStatus waits for the guard to exit and returns its exit status; -1 if it was killed by a signal.
func (fx *fixture) guardExitStatus() int {
	fx.t.Helper()
	select {
	case <-fx.exited:
	case <-time.After(testTimeout):
		fx.t.Fatal("the guard does not exit")
	}
	return fx.cmd.ProcessState.ExitCode()
}

// signalGuard sends the guard a signal. It waits until a SIGSTOP has stopped all threads, as one that still runs could confirm a
// lease.
func (fx *fixture) signalGuard(sig syscall.Signal) {
	fx.t.Helper()
	fx.cmd.Process.Signal(sig)
	if sig == syscall.SIGSTOP {
		eventually(fx.t, "the stop", func() bool { return !isRunning(fx.cmd.Process.Pid) })
	}
}

// stopProcesses stops processes and waits until they have stopped.
func (fx *fixture) stopProcesses(pids ...int) {
	fx.t.Helper()
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGSTOP)
	}
	for _, pid := range pids {
		eventually(fx.t, "the stop", func() bool { return !isRunning(pid) })
	}
}

// killAtOnce kills processes such that none of them notices the death of another. The guard must be the last: its death orphans
// the process groups of its children, and the kernel continues stopped processes in orphaned process groups.
func (fx *fixture) killAtOnce(pids ...int) {
	fx.t.Helper()
	fx.stopProcesses(pids...)
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// isRunning reports whether any thread of a process is neither stopped nor dead.
func isRunning(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // fails only for a malformed pattern
	return slices.ContainsFunc(threads, func(file string) bool {
		_, state, _ := strings.Cut(read(file), ") ")
		return state != "" && !strings.ContainsRune("TtZX", rune(state[0]))
	})
}

// closedSessions returns the sessions that were closed so far.
func (fx *fixture) closedSessions() []closedSession {
	fx.t.Helper()
	var all []closedSession
	for line := range strings.Lines(read(filepath.Join(fx.dir, "closed"))) {
		var s closedSession
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			fx.t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// credentials returns the session that all daemons of the fixture use.
func (fx *fixture) credentials() Credentials {
	return Credentials{Servers: []string{"a:1", "b:2"}, ID: 0x1234, Password: []byte("secret"), Timeout: 4 * time.Second, File: filepath.Join(fx.dir, "session")}
}

// eventually waits until ok returns true, and fails the test after a timeout.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testhelper.Eventually(t, testTimeout, what, ok)
}

// pidsWithEnv returns the pids of processes that have all of vars in their environment.
func pidsWithEnv(vars []string) []int { return pidsWithAnyEnv([][]string{vars}) }

// alive reports whether a process is alive.
func alive(pid int) bool {
	s, err := procinfo.ReadStat(pid)
	return err == nil && !s.Ended()
}

// read returns the content of a file; empty if it cannot be read.
func read(path string) string { return testhelper.Read(path) }

// put writes a file that only its owner can read.
func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// descriptors returns the targets of the open file descriptors of a process.
func descriptors(pid string) []string {
	links, _ := filepath.Glob("/proc/" + pid + "/fd/*")
	var all []string
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil {
			all = append(all, target)
		}
	}
	return all
}

// openFiles counts the open files of the guard and of the daemon.
func (d *remoteDaemon) openFiles() (guard, daemon int) {
	return len(descriptors(strconv.Itoa(d.cmd.Process.Pid))), len(descriptors(strconv.Itoa(d.pid)))
}

// readable reports whether there is something to read now.
func readable(t *testing.T, f *os.File) (yes bool) {
	t.Helper()
	conn, err := f.SyscallConn()
	if err == nil {
		err = conn.Control(func(fd uintptr) {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, _ := unix.Poll(fds, 0)
			yes = n > 0
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return yes
}
