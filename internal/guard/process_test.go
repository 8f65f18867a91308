package guard

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/boottime"
)

// The lists of children are read as numbers, as far as they can be read.
func TestTheListsOfChildren(t *testing.T) {
	list := func(text string) int {
		path := filepath.Join(t.TempDir(), "children")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	o := &childList{files: []int{list("12 345 6 "), list(""), -1, list("90 7 1")}, buf: make([]byte, 64)}
	var all []int
	for range 2 { // nothing is used up
		o.forEach(func(pid int) { all = append(all, pid) })
	}
	if want := []int{12, 345, 6, 90, 7, 12, 345, 6, 90, 7}; !slices.Equal(all, want) { // the last may be cut off
		t.Errorf("%d, not %d", all, want)
	}
	lists := o.files
	if o.close(); unix.Close(lists[0]) == nil || unix.Close(lists[3]) == nil {
		t.Error("not all are closed")
	}
}

// What is below a process is found with all that is below that, but for what is spared.
func TestDescendants(t *testing.T) {
	_, p := sleeper(t)
	if got := descendants(p.Pid); len(got) != 0 {
		t.Errorf("%d below a process without children", got)
	}
	k := startTestKeeper(t, KeeperContainment)
	k.start(`sh -c 'echo $$ >$D/child; sh -c "echo \$\$ >$D/grandchild; exec sleep 1000"; :'; :`, boottime.Now()+time.Hour)
	child, grandchild := k.pidFromFile("child"), k.pidFromFile("grandchild")
	all := descendants(k.cmd.Process.Pid)
	if len(all) != 3 || all[1] != child || all[2] != grandchild {
		t.Errorf("%d; the child is %d, its child %d", all, child, grandchild)
	}
	if got := descendants(k.cmd.Process.Pid, child); !slices.Equal(got, all[:1]) {
		t.Errorf("%d without %d", got, child)
	}
}

// Whoever can't open files any more can still tell whether a process has ended.
func TestAnExitIsSeenWithoutDescriptors(t *testing.T) {
	cmd, p := sleeper(t)
	fd, err := unix.PidfdOpen(p.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	without := func() bool {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: limit.Max}); err != nil {
			t.Fatal(err)
		}
		defer unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
		return hasExited(fd)
	}
	if hasExited(fd) || without() {
		t.Error("it lives")
	}
	cmd.Process.Kill()
	eventually(t, "its end", func() bool { return hasExited(fd) })
	cmd.Wait()
	if !hasExited(fd) || !without() {
		t.Error("it is dead")
	}
}

// Nothing that guard and keeper open is open in what they start: a control group's files would let the work spare itself.
func TestNothingIsInherited(t *testing.T) {
	requireCgroups(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	open := func() map[string]bool {
		all := make(map[string]bool)
		links, _ := filepath.Glob("/proc/self/fd/*") // the pattern is in order
		for _, link := range links {
			all[filepath.Base(link)] = true
		}
		return all
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	before := open()
	near, far, err := socketpair()
	must(err)
	defer near.Close()
	defer far.Close()
	tm, err := newTimer()
	must(err)
	defer tm.close()
	children, err := openChildList()
	must(err)
	defer children.close()
	c, err := newCgroup(delegatedCgroup(), 9)
	must(err)
	defer func() { must(c.remove()); c.close() }()
	unit, err := openUnitGroup(c.dir)
	must(err)
	defer unit.close()
	if unit.killFD < 0 || unit.eventsFD < 0 || unit.populated() || unit.kill() != nil {
		t.Errorf("a unit's control group: %+v", unit)
	}
	_, p := sleeper(t)
	proof, err := openContainment(ContainmentRecord{Mode: PidnsContainment, Keeper: p})
	must(err)
	defer proof.close()
	input, err := (&Spec{Input: []byte("read me")}).input()
	must(err)
	defer input.Close()
	out, w, err := newCapture()
	must(err)
	w.Close()
	defer out.close()
	last := (&guard{lastConfig: []byte("good")}).lastConfigFile()
	defer last.Close()
	t.Setenv("NOTIFY_SOCKET", "/no/such/manager")
	s := newNotifier(slog.New(slog.DiscardHandler))
	defer s.close()
	n := 0
	for name := range open() {
		if before[name] {
			continue
		}
		var fd int
		fmt.Sscan(name, &fd)
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("%s would be inherited", name)
		}
		n++
	}
	if n < 12 {
		t.Errorf("only %d are open", n)
	}
}
