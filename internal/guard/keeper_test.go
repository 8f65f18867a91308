package guard

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/boottime"
)

// kept is a keeper whose guard is the test: what it does, it does without help.
type keeperFixture struct {
	*fixture
	cmd         *exec.Cmd
	socket      *os.File // the guard's end
	report      *os.File
	containment Containment
	group       *cgroup // what it puts the work into; nil for none
	seq         int
}

func startTestKeeper(t *testing.T, by Containment) *keeperFixture {
	t.Helper()
	k := &keeperFixture{containment: by, fixture: &fixture{t: t, dir: t.TempDir(), startTimes: make(map[int]uint64)}, cmd: exec.Command("/proc/self/exe", keeperArgument)}
	near, far, err := socketpair()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	word, said, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	k.socket, k.report = near, word
	t.Cleanup(func() { near.Close(); word.Close() })
	k.cmd.ExtraFiles, k.cmd.SysProcAttr = []*os.File{far, said}, &syscall.SysProcAttr{Setpgid: true}
	if by == PidnsContainment {
		inNewPIDNamespace(k.cmd.SysProcAttr)
		k.cmd.SysProcAttr.Pdeathsig = 0 // it follows the thread, and this one may end
	}
	if err := k.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	k.killAtEnd()
	k.expect(kindReady, "")
	return k
}

// keep has nothing left after the test.
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

func (k *keeperFixture) send(m message) {
	k.t.Helper()
	if err := writeFrame(k.socket, m); err != nil {
		k.t.Fatal(err)
	}
}

// expect is the keeper's next message, which must be of a kind and say something.
func (k *keeperFixture) expect(want kind, text string) message {
	k.t.Helper()
	k.socket.SetReadDeadline(time.Now().Add(testTimeout))
	m, err := readFrame(k.socket)
	if err != nil {
		k.t.Fatalf("waiting for %s: %v", want, err)
	}
	if m.Kind != want || m.Seq != k.seq || !strings.Contains(m.Status+m.Error+m.Output, text) {
		k.t.Fatalf("not %s %d %q but %+v", want, k.seq, text, m)
	}
	return m
}

// silent checks that the keeper says nothing, as far as can be told.
func (k *keeperFixture) expectNothing(what string) {
	k.t.Helper()
	k.socket.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
	if m, err := readFrame(k.socket); !errors.Is(err, os.ErrDeadlineExceeded) {
		k.t.Errorf("%s: %+v, %v", what, m, err)
	}
}

func (k *keeperFixture) stateFile() string { return filepath.Join(k.dir, "mark") }

// start has a script started, and returns its pid.
func (k *keeperFixture) start(script string, lease time.Duration) (pid int) {
	k.t.Helper()
	k.seq++
	m := message{Kind: kindStart, Seq: k.seq, At: lease, Spec: &Spec{
		Path: "/bin/sh", Argv: []string{"sh", "-c", script}, Env: k.env(), StopSignal: syscall.SIGTERM, StateFile: k.stateFile(), Capture: true,
	}}
	if k.containment == CgroupContainment { // a new one each time, as the guard does
		group, err := newCgroup(delegatedCgroup(), k.seq)
		if err != nil {
			k.t.Fatal(err)
		}
		k.t.Cleanup(func() {
			group.kill()
			eventually(k.t, "the end of the control group", func() bool { return group.remove() == nil })
			group.close()
		})
		k.group, m.Dir = group, group.dir
	}
	k.send(m)
	return k.expect(kindStarted, "").Pid
}

// spread is work with a main process, one in its group, and one that has left everything behind.
func (k *keeperFixture) startSpreadWork(lease time.Duration) []int {
	k.t.Helper()
	for _, name := range []string{"main", "member", "hidden"} {
		os.Remove(filepath.Join(k.dir, name))
	}
	pid := k.start(`echo $$ >$D/main; trap '' TERM
		sh -c 'echo $$ >$D/member; exec sleep 1000' &
		(setsid sh -c 'sh -c "echo \$\$ >$D/hidden; exec sleep 1000" &' &)
		echo it runs; exec sleep 1000`, lease)
	pids := []int{k.hostPidFromFile("main"), k.hostPidFromFile("member"), k.hostPidFromFile("hidden")}
	k.rememberStart(pids...)
	if pid != innermostPid(pids[0]) {
		k.t.Errorf("it says that %d was started, not %d", pid, innermostPid(pids[0]))
	}
	if text := read(k.stateFile()); text != stateRunning {
		k.t.Errorf("the mark says %q", text)
	}
	return pids
}

// ended wants the work to be reported dead, and to be so.
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
		k.t.Errorf("the mark says %q", text)
	}
	if k.group != nil && k.group.populated() {
		k.t.Error("its control group is not empty")
	}
}

// A keeper ends the work by itself: with the lease, when it is told, after a grace, and when its guard is gone.
func TestTheKeeperEndsTheWorkAlone(t *testing.T) {
	t.Parallel()
	const killed = "was killed by signal 9 (killed)"
	for _, by := range allContainments {
		t.Run(string(by), func(t *testing.T) {
			t.Parallel()
			k := startTestKeeper(t, by)

			pids := k.startSpreadWork(boottime.Now() + time.Hour)
			deadline := boottime.Now() + 300*time.Millisecond
			k.send(message{Kind: kindLease, At: deadline})
			k.expectDead(killed, pids)
			if early := deadline + keeperDelay - boottime.Now(); early > 0 {
				t.Errorf("dead %s early", early)
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
				t.Errorf("its grace was %s", took)
			}

			pids = k.startSpreadWork(boottime.Now() + time.Hour)
			k.send(message{Kind: kindStop, Seq: k.seq}) // no grace
			k.expectDead(killed, pids)

			pids = k.startSpreadWork(boottime.Now() + time.Hour)
			closeWrite(k.socket)
			k.waitDead(pids...)
			word, err := io.ReadAll(k.report)
			if err != nil || string(word) != string(rune(reportDead)) || k.cmd.Wait() != nil {
				t.Errorf("it says %q, %v, and ends %s", word, err, k.cmd.ProcessState)
			}
			if text := read(k.stateFile()); text != stateDead {
				t.Errorf("the mark says %q", text)
			}
		})
	}
}

// What is no child of the keeper's, and is in the control group, belongs to the work too.
func TestTheKeeperEndsAllOfTheControlGroup(t *testing.T) {
	t.Parallel()
	k := startTestKeeper(t, CgroupContainment)
	pids := k.startSpreadWork(boottime.Now() + time.Hour)
	stranger, p := sleeper(t)
	if err := os.WriteFile(filepath.Join(k.group.dir, "cgroup.procs"), fmt.Append(nil, p.Pid), 0); err != nil {
		t.Fatal(err)
	}
	k.send(message{Kind: kindKill, Seq: k.seq})
	k.expect(kindKilling, "")
	k.expectDead("was killed", append(pids, p.Pid))
	stranger.Wait()
}

// What ends of itself is reported as it ended; what it has left behind is killed. A failed start leaves nothing.
func TestTheKeeperReportsTheEnd(t *testing.T) {
	t.Parallel()
	k := startTestKeeper(t, KeeperContainment)
	before := len(descriptors(strconv.Itoa(k.cmd.Process.Pid)))
	k.start(`sh -c 'echo $$ >$D/left; exec sleep 1000' & until [ -s $D/left ]; do :; done; echo it runs; exit 3`, boottime.Now()+time.Hour)
	k.rememberStart(k.pidFromFile("left"))
	k.expectDead("exited with status 3", []int{k.pidFromFile("left")})
	k.seq++
	k.send(message{Kind: kindStart, Seq: k.seq, At: boottime.Now() + time.Hour, Spec: &Spec{Path: "/no/such/program", Argv: []string{"none"}, StateFile: k.stateFile()}})
	k.expect(kindStarted, "/no/such/program")
	if text := read(k.stateFile()); text != stateDead {
		t.Errorf("the mark says %q", text)
	}
	k.seq++
	k.send(message{Kind: kindStart, Seq: k.seq, At: boottime.Now(), Spec: &Spec{Path: "/bin/sleep", Argv: []string{"sleep", "1000"}, StateFile: k.stateFile()}})
	k.expect(kindStarted, errNoLease.Error())
	k.expectNothing("a start after the lease")
	if after := len(descriptors(strconv.Itoa(k.cmd.Process.Pid))); after > before {
		t.Errorf("open file descriptors grew from %d to %d", before, after)
	}
}

// Nobody spins: neither without work, nor with it, nor after it.
func TestTheKeeperSleeps(t *testing.T) {
	t.Parallel()
	k := startTestKeeper(t, KeeperContainment)
	rests := func(what string) {
		t.Helper()
		before, began := contextSwitches(k.cmd.Process.Pid), boottime.Now()
		eventually(t, "some time", func() bool { return boottime.Now() > began+200*time.Millisecond })
		if n := contextSwitches(k.cmd.Process.Pid) - before; n > 60 {
			t.Errorf("%s: it was run %d times in %s", what, n, boottime.Now()-began)
		}
	}
	rests("without work")
	pids := k.startSpreadWork(boottime.Now() + time.Hour)
	rests("with work")
	k.send(message{Kind: kindStop, Seq: k.seq, Grace: time.Hour})
	rests("with work that was asked to stop")
	k.send(message{Kind: kindKill, Seq: k.seq})
	k.expect(kindKilling, "")
	k.expectDead("was killed", pids)
	rests("after the work")
}

// turns is how often threads of a process have given up the processor.
func contextSwitches(pid int) (n int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid)) // the pattern is in order
	for _, file := range files {
		for line := range strings.Lines(read(file)) {
			var own int
			if strings.Contains(line, "ctxt_switches:") {
				fmt.Sscan(line[strings.Index(line, ":")+1:], &own)
				n += own
			}
		}
	}
	return n
}
