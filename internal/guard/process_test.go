package guard

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/sys/boottime"
)

// A childList yields all pids in its files; files that cannot be read are skipped.
func TestChildList(t *testing.T) {
	list := func(text string) int {
		path := filepath.Join(t.TempDir(), "children")
		put(t, path, text)
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	o := &childList{files: []int{list("12 345 6 "), list(""), -1, list("90 7 1")}, buf: make([]byte, 64)}
	var all []int
	for range 2 { // reading does not consume anything
		o.forEach(func(pid int) bool { all = append(all, pid); return true })
	}
	if want := []int{12, 345, 6, 90, 7, 12, 345, 6, 90, 7}; !slices.Equal(all, want) { // the last number may be incomplete
		t.Errorf("%d, not %d", all, want)
	}
	lists := o.files
	if o.close(); unix.Close(lists[0]) == nil || unix.Close(lists[3]) == nil {
		t.Error("not all files were closed")
	}
}

// However many processes there are, one portion of a list has an end, and the files that it opens are counted.
func TestPortionsAreLimited(t *testing.T) {
	next := 0
	endless := func(_, limit int) (all []int, opened int) {
		next++
		return []int{2 * next, 2*next + 1}, min(limit, 2)
	}
	if all := nearest(endless, 1); len(all) != portionOpened {
		t.Errorf("%d descendants with one file for each", len(all))
	}
	many := func(int, int) ([]int, int) { return make([]int, portionListed/4), 1 }
	if all := nearest(many, 1); len(all) != portionListed {
		t.Errorf("%d descendants, of those that need few files", len(all))
	}
	var r reaper
	exits := 0
	r.wait4 = func(*syscall.WaitStatus) (int, error) { return 1 << 29, nil }
	if r.reap(func(int, syscall.WaitStatus) { exits++ }) || exits != portionReaped || !r.any || !r.more {
		t.Errorf("%d exits, %+v", exits, r)
	}
	r.wait4 = func(*syscall.WaitStatus) (int, error) { return -1, syscall.ECHILD }
	if !r.reap(nil) || r.any || r.more {
		t.Errorf("nothing is left: %+v", r)
	}
	var scan processScan
	defer scan.close()
	for found, parts := false, 1; !found; parts++ {
		pids, last := scan.next()
		if found = slices.Contains(pids, os.Getpid()); len(pids) > portionOpened || last && !found && parts > 100 {
			t.Fatalf("%d processes at once; this one was found: %t", len(pids), found)
		}
	}
}

// descendants returns children and their children, without the exceptions.
func TestDescendants(t *testing.T) {
	_, p := sleeper(t)
	if got := descendants(p.Pid); len(got) != 0 {
		t.Errorf("descendants of a process without children: %d", got)
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

// No file that guard and keeper open is inherited by their children. With the files of its control group, for example, the work
// could interfere with its own kill.
func TestNoFileIsInherited(t *testing.T) {
	requireCgroups(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	open := func() map[string]bool {
		all := make(map[string]bool)
		links, _ := filepath.Glob("/proc/self/fd/*") // fails only for a malformed pattern
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
	tm, err := boottime.NewTimer()
	must(err)
	defer tm.Close()
	children, err := openChildList(0)
	must(err)
	defer children.close()
	c, err := newCgroup(delegatedCgroup(), 9)
	must(err)
	defer func() { must(c.remove()); c.Close() }()
	unit, _, err := openCgroupFiles(c.dir, false)
	must(err)
	defer unit.Close()
	if unit.killFD < 0 || unit.eventsFD < 0 || unit.Empty() != nil || unit.Kill() != nil {
		t.Errorf("a unit's control group: %+v", unit)
	}
	input, err := (&Spec{Input: []byte("read me")}).input()
	must(err)
	defer input.Close()
	out, w, err := newCapture()
	must(err)
	w.Close()
	defer out.close()
	last := (&guard{lastConfig: []byte("good")}).startConfigFile()
	defer last.Close()
	t.Setenv("NOTIFY_SOCKET", "/no/such/manager")
	s := newNotifier(slog.New(slog.DiscardHandler))
	defer unix.Close(s.socket)
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
		t.Errorf("only %d files are open", n)
	}
}
