package guard

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/sys/boottime"
)

// keeperFixture is a keeper process for which the test plays the guard.
type keeperFixture struct {
	*fixture
	cmd         *exec.Cmd
	socket      *socket // the guard's end of the socket
	report      *os.File
	containment Containment
	group       *cgroup // the control group of the work; nil for none
	seq         int
	place       place // of the lease of all of its works
}

// startTestKeeper starts a keeper, with further variables in its environment, and waits until it is ready.
func startTestKeeper(t *testing.T, c Containment, env ...string) *keeperFixture {
	t.Helper()
	k := &keeperFixture{containment: c, fixture: &fixture{t: t, dir: t.TempDir(), startTimes: make(map[int]uint64)}, cmd: exec.Command("/proc/self/exe", keeperArgument)}
	near, far, err := socketpair()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	report, reportWriter, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reportWriter.Close()
	k.socket, k.report = near, report
	t.Cleanup(func() { near.Close(); report.Close() })
	k.cmd.Env = append(os.Environ(), env...)
	board, file, err := newBoard()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	k.place = board.place(3, 5)
	k.cmd.ExtraFiles, k.cmd.SysProcAttr = []*os.File{far, reportWriter, file}, &syscall.SysProcAttr{Setpgid: true}
	if err := k.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	k.killAtEnd()
	k.expect(kindReady, "")
	k.send(message{Kind: kindHello, Seq: 9})
	return k
}

// killAtEnd kills the keeper and the work after the test.
func (k *keeperFixture) killAtEnd() {
	k.t.Cleanup(func() {
		k.cmd.Process.Kill()
		k.cmd.Wait()
		for pid := range k.startTimes {
			if k.alive(pid) {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
}

// send sends a message to the keeper.
func (k *keeperFixture) send(m message) {
	k.t.Helper()
	if err := writeFrame(k.socket, m); err != nil {
		k.t.Fatal(err)
	}
}

// expect returns the keeper's next message, which must have the given kind and contain text.
func (k *keeperFixture) expect(want kind, text string) message {
	k.t.Helper()
	k.socket.SetReadDeadline(time.Now().Add(testTimeout))
	m, err := readFrame(k.socket)
	if err != nil {
		k.t.Fatalf("waiting for %s: %v", want, err)
	}
	if m.Kind != want || m.Seq != k.seq || !strings.Contains(m.Status+m.Error+m.Output, text) {
		k.t.Fatalf("got %+v, want %s %d %q", m, want, k.seq, text)
	}
	return m
}

// expectNothing checks that the keeper sends no message within a short time.
func (k *keeperFixture) expectNothing(what string) {
	k.t.Helper()
	k.socket.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
	if m, err := readFrame(k.socket); !errors.Is(err, os.ErrDeadlineExceeded) {
		k.t.Errorf("%s: %+v, %v", what, m, err)
	}
}

func (k *keeperFixture) stateFile() string { return filepath.Join(k.dir, "state") }

// start starts a script as work and returns its pid.
func (k *keeperFixture) start(script string, lease time.Duration) (pid int) {
	k.t.Helper()
	k.seq++
	k.place.setDeadline(lease)
	m := message{Kind: kindStart, Seq: k.seq, Place: k.place.index, Leadership: 5, Spec: &Spec{
		Path: "/bin/sh", Argv: []string{"sh", "-c", script}, Env: k.env(), StopSignal: syscall.SIGTERM, StateFile: k.stateFile(), Capture: true,
	}}
	if k.containment == CgroupContainment { // a new group each time, as the guard does
		group, err := newCgroup(delegatedCgroup(), k.seq)
		if err != nil {
			k.t.Fatal(err)
		}
		k.t.Cleanup(func() {
			group.Kill()
			eventually(k.t, "the removal of the control group", func() bool { return group.remove() == nil })
			group.Close()
		})
		k.group, m.Dir = group, group.dir
	}
	k.send(m)
	return k.expect(kindStarted, "").Pid
}

// startSpreadWork starts work with a main process, a second one in its process group, and a third one that is in another session
// and has lost its parents.
func (k *keeperFixture) startSpreadWork(lease time.Duration) []int {
	k.t.Helper()
	for _, name := range []string{"main", "member", "hidden"} {
		os.Remove(filepath.Join(k.dir, name))
	}
	pid := k.start(`echo it runs; echo $$ >$D/main; trap '' TERM
		sh -c 'echo $$ >$D/member; exec sleep 1000' &
		(setsid sh -c 'sh -c "echo \$\$ >$D/hidden; exec sleep 1000" &' &)
		exec sleep 1000`, lease)
	pids := []int{k.pidFromFile("main"), k.pidFromFile("member"), k.pidFromFile("hidden")}
	k.rememberStart(pids...)
	if pid != pids[0] {
		k.t.Errorf("the keeper reported pid %d, want %d", pid, pids[0])
	}
	if text := read(k.stateFile()); text != stateRunning {
		k.t.Errorf("the state file says %q", text)
	}
	return pids
}

// expectDead checks that the keeper reports the death of the work, and that the work is dead.
func (k *keeperFixture) expectDead(how string, pids []int) {
	k.t.Helper()
	k.expect(kindExited, how)
	k.expect(kindDead, "it runs\n")
	for _, pid := range pids {
		if k.alive(pid) {
			k.t.Errorf("process %d is still alive", pid)
		}
	}
	if text := read(k.stateFile()); text != stateDead {
		k.t.Errorf("the state file says %q", text)
	}
	if k.group != nil && k.group.Empty() != nil {
		k.t.Error("the control group is not empty")
	}
}

// The keeper alone kills the work when the lease ends, on a kill message, after the grace period of a stop, and when the guard is
// gone.
func TestKeeperKillsWork(t *testing.T) {
	t.Parallel()
	const killed = "was killed by signal 9 (killed)"
	for _, c := range allContainments {
		t.Run(string(c), func(t *testing.T) {
			t.Parallel()
			k := startTestKeeper(t, c)
			files := func() int { return len(descriptors(strconv.Itoa(k.cmd.Process.Pid))) }
			most := files()

			pids := k.startSpreadWork(boottime.Now() + time.Hour)
			deadline := boottime.Now() + 300*time.Millisecond
			k.place.setDeadline(deadline)
			k.send(message{Kind: kindLease})
			k.expectDead(killed, pids)
			if early := deadline + keeperDelay - boottime.Now(); early > 0 {
				t.Errorf("dead %s too early", early)
			}

			pids = k.startSpreadWork(boottime.Now() + time.Hour)
			for _, seq := range []int{k.seq - 1, k.seq + 1} { // of other work
				k.send(message{Kind: kindKill, Seq: seq})
				k.send(message{Kind: kindStop, Seq: seq})
			}
			k.expectNothing("other work")
			k.send(message{Kind: kindKill, Seq: k.seq})
			k.expect(kindKilling, "")
			k.expectDead(killed, pids)

			pids = k.startSpreadWork(boottime.Now() + time.Hour)
			before := boottime.Now()
			k.send(message{Kind: kindStop, Seq: k.seq, Grace: 100 * time.Millisecond})
			k.expectDead(killed, pids)
			if took := boottime.Now() - before; took < 100*time.Millisecond+keeperDelay {
				t.Errorf("killed after %s", took)
			}

			pids = k.startSpreadWork(boottime.Now() + time.Hour)
			k.send(message{Kind: kindStop, Seq: k.seq}) // no grace
			k.expectDead(killed, pids)
			eventually(t, "no more open files than before", func() bool { return files() <= most })

			pids = k.startSpreadWork(boottime.Now() + time.Hour)
			closeWrite(k.socket)
			k.waitDead(pids...)
			report, err := io.ReadAll(k.report)
			if err != nil || string(report) != "\x00\x00\x00\x00\x00\x00\x00\x09" || k.cmd.Wait() != nil {
				t.Errorf("report %q, %v, exit %s", report, err, k.cmd.ProcessState)
			}
			if text := read(k.stateFile()); text != stateDead {
				t.Errorf("the state file says %q", text)
			}
		})
	}
}

// The work has a session of its own, without a terminal: one of zkelectd would stop it, without a word, when it reads
// from there.
func TestWorkHasNoTerminal(t *testing.T) {
	t.Parallel()
	k := startTestKeeper(t, KeeperContainment)
	k.start("set -- $(cat /proc/$$/stat); echo $(($6 - $$)) $7", boottime.Now()+time.Hour)
	k.expect(kindExited, StatusSuccess)
	k.expect(kindDead, "0 0\n")
}
