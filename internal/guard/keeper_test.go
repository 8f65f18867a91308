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
type kept struct {
	*house
	cmd    *exec.Cmd
	socket *os.File // the guard's end
	word   *os.File
	by     Containment
	group  *cgroup // what it puts the work into; nil for none
	seq    int
}

func newKept(t *testing.T, by Containment) *kept {
	t.Helper()
	k := &kept{by: by, house: &house{t: t, dir: t.TempDir(), born: make(map[int]uint64)}, cmd: exec.Command("/proc/self/exe", keeperArgument)}
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
	k.socket, k.word = near, word
	t.Cleanup(func() { near.Close(); word.Close() })
	k.cmd.ExtraFiles, k.cmd.SysProcAttr = []*os.File{far, said}, &syscall.SysProcAttr{Setpgid: true}
	if by == PidnsContainment {
		namespaces(k.cmd.SysProcAttr)
		k.cmd.SysProcAttr.Pdeathsig = 0 // it follows the thread, and this one may end
	}
	if err := k.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	k.keep()
	k.expect(kindLeased, "")
	return k
}

// keep has nothing left after the test.
func (k *kept) keep() {
	k.t.Cleanup(func() {
		k.cmd.Process.Kill()
		k.cmd.Wait()
		for pid := range k.born {
			if k.alive(pid) {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
}

func (k *kept) say(m message) {
	k.t.Helper()
	if err := writeFrame(k.socket, m); err != nil {
		k.t.Fatal(err)
	}
}

// expect is the keeper's next message, which must be of a kind and say something.
func (k *kept) expect(want kind, text string) message {
	k.t.Helper()
	k.socket.SetReadDeadline(time.Now().Add(patience))
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
func (k *kept) silent(what string) {
	k.t.Helper()
	k.socket.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
	if m, err := readFrame(k.socket); !errors.Is(err, os.ErrDeadlineExceeded) {
		k.t.Errorf("%s: %+v, %v", what, m, err)
	}
}

func (k *kept) mark() string { return filepath.Join(k.dir, "mark") }

// start has a script started, and returns its pid.
func (k *kept) start(script string, lease time.Duration) (pid int) {
	k.t.Helper()
	k.seq++
	m := message{Kind: kindStart, Seq: k.seq, At: lease, Spec: &Spec{
		Path: "/bin/sh", Argv: []string{"sh", "-c", script}, Env: k.env(), StopSignal: syscall.SIGTERM, StateFile: k.mark(), Capture: true,
	}}
	if k.by == CgroupContainment { // a new one each time, as the guard does
		group, err := newCgroup(cgroupParent(), k.seq)
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
	k.say(m)
	return k.expect(kindStarted, "").Pid
}

// spread is work with a main process, one in its group, and one that has left everything behind.
func (k *kept) spread(lease time.Duration) []int {
	k.t.Helper()
	for _, name := range []string{"main", "member", "hidden"} {
		os.Remove(filepath.Join(k.dir, name))
	}
	pid := k.start(`echo $$ >$D/main; trap '' TERM
		sh -c 'echo $$ >$D/member; exec sleep 1000' &
		(setsid sh -c 'sh -c "echo \$\$ >$D/hidden; exec sleep 1000" &' &)
		echo it runs; exec sleep 1000`, lease)
	pids := []int{k.seen("main"), k.seen("member"), k.seen("hidden")}
	k.note(pids...)
	if pid != innermost(pids[0]) {
		k.t.Errorf("it says that %d was started, not %d", pid, innermost(pids[0]))
	}
	if text := read(k.mark()); text != markRunning {
		k.t.Errorf("the mark says %q", text)
	}
	return pids
}

// ended wants the work to be reported dead, and to be so.
func (k *kept) ended(how string, pids []int) {
	k.t.Helper()
	k.expect(kindExited, how)
	k.expect(kindDead, "it runs\n")
	for _, pid := range pids {
		if k.alive(pid) {
			k.t.Errorf("%d survives", pid)
		}
	}
	if text := read(k.mark()); text != markDead {
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
	for _, by := range contained {
		t.Run(string(by), func(t *testing.T) {
			t.Parallel()
			k := newKept(t, by)

			pids := k.spread(boottime.Now() + time.Hour)
			deadline := boottime.Now() + 300*time.Millisecond
			k.say(message{Kind: kindLease, At: deadline})
			k.ended(killed, pids)
			if early := deadline + keeperLag - boottime.Now(); early > 0 {
				t.Errorf("dead %s early", early)
			}

			pids = k.spread(boottime.Now() + time.Hour)
			for _, seq := range []int{k.seq - 1, k.seq + 1} { // of other work
				k.say(message{Kind: kindKill, Seq: seq})
				k.say(message{Kind: kindStop, Seq: seq})
			}
			k.silent("other work")
			k.say(message{Kind: kindKill, Seq: k.seq})
			k.expect(kindHeard, "")
			k.ended(killed, pids)

			pids = k.spread(boottime.Now() + time.Hour)
			before := boottime.Now()
			k.say(message{Kind: kindStop, Seq: k.seq, Grace: 100 * time.Millisecond})
			k.ended(killed, pids)
			if took := boottime.Now() - before; took < 100*time.Millisecond+keeperLag {
				t.Errorf("its grace was %s", took)
			}

			pids = k.spread(boottime.Now() + time.Hour)
			k.say(message{Kind: kindStop, Seq: k.seq}) // no grace
			k.ended(killed, pids)

			pids = k.spread(boottime.Now() + time.Hour)
			shutdown(k.socket)
			k.dead(pids...)
			word, err := io.ReadAll(k.word)
			if err != nil || string(word) != string(rune(wordDead)) || k.cmd.Wait() != nil {
				t.Errorf("it says %q, %v, and ends %s", word, err, k.cmd.ProcessState)
			}
			if text := read(k.mark()); text != markDead {
				t.Errorf("the mark says %q", text)
			}
		})
	}
}

// What is no child of the keeper's, and is in the control group, belongs to the work too.
func TestTheKeeperEndsAllOfTheControlGroup(t *testing.T) {
	t.Parallel()
	k := newKept(t, CgroupContainment)
	pids := k.spread(boottime.Now() + time.Hour)
	stranger, p := sleeper(t)
	if err := os.WriteFile(filepath.Join(k.group.dir, "cgroup.procs"), fmt.Append(nil, p.Pid), 0); err != nil {
		t.Fatal(err)
	}
	k.say(message{Kind: kindKill, Seq: k.seq})
	k.expect(kindHeard, "")
	k.ended("was killed", append(pids, p.Pid))
	stranger.Wait()
}

// What ends of itself is reported as it ended; what it has left behind is killed. A failed start leaves nothing.
func TestTheKeeperReportsTheEnd(t *testing.T) {
	t.Parallel()
	k := newKept(t, KeeperContainment)
	before := len(descriptors(strconv.Itoa(k.cmd.Process.Pid)))
	k.start(`sh -c 'echo $$ >$D/left; exec sleep 1000' & until [ -s $D/left ]; do :; done; echo it runs; exit 3`, boottime.Now()+time.Hour)
	k.note(k.wrote("left"))
	k.ended("exited with status 3", []int{k.wrote("left")})
	k.seq++
	k.say(message{Kind: kindStart, Seq: k.seq, At: boottime.Now() + time.Hour, Spec: &Spec{Path: "/no/such/program", Argv: []string{"none"}, StateFile: k.mark()}})
	k.expect(kindStarted, "/no/such/program")
	if text := read(k.mark()); text != markDead {
		t.Errorf("the mark says %q", text)
	}
	k.seq++
	k.say(message{Kind: kindStart, Seq: k.seq, At: boottime.Now(), Spec: &Spec{Path: "/bin/sleep", Argv: []string{"sleep", "1000"}, StateFile: k.mark()}})
	k.expect(kindStarted, errNoLease.Error())
	k.silent("a start after the lease")
	if after := len(descriptors(strconv.Itoa(k.cmd.Process.Pid))); after > before {
		t.Errorf("%d descriptors were open, now %d", before, after)
	}
}

// Nobody spins: neither without work, nor with it, nor after it.
func TestTheKeeperSleeps(t *testing.T) {
	t.Parallel()
	k := newKept(t, KeeperContainment)
	rests := func(what string) {
		t.Helper()
		before, began := turns(k.cmd.Process.Pid), boottime.Now()
		eventually(t, "some time", func() bool { return boottime.Now() > began+200*time.Millisecond })
		if n := turns(k.cmd.Process.Pid) - before; n > 60 {
			t.Errorf("%s: it was run %d times in %s", what, n, boottime.Now()-began)
		}
	}
	rests("without work")
	pids := k.spread(boottime.Now() + time.Hour)
	rests("with work")
	k.say(message{Kind: kindStop, Seq: k.seq, Grace: time.Hour})
	rests("with work that was asked to stop")
	k.say(message{Kind: kindKill, Seq: k.seq})
	k.expect(kindHeard, "")
	k.ended("was killed", pids)
	rests("after the work")
}

// turns is how often threads of a process have given up the processor.
func turns(pid int) (n int) {
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
