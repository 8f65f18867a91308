package guard

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"zkelectd/internal/sys/nowait"
	"zkelectd/internal/sys/procinfo"
)

// childList lists the direct children of this process without opening a file. It reads the lists of the main thread,
// which adopts orphans, and of the threads that start processes.
type childList struct {
	files []int // descriptors of /proc/self/task/TID/children
	buf   []byte
}

// openChildList opens the lists of the main thread, of the current one, and of another one if its id is not 0.
func openChildList(thread int) (*childList, error) {
	o := &childList{buf: make([]byte, 4<<10)}
	threads := []int{os.Getpid()}
	for _, tid := range []int{unix.Gettid(), thread} {
		if tid != 0 && !slices.Contains(threads, tid) {
			threads = append(threads, tid)
		}
	}
	for _, tid := range threads {
		fd, err := unix.Open(fmt.Sprintf("/proc/self/task/%d/children", tid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			o.close()
			return nil, fmt.Errorf("cannot list child processes (is /proc mounted, and CONFIG_PROC_CHILDREN set?): %w", err)
		}
		o.files = append(o.files, fd)
	}
	return o, nil
}

func (o *childList) close() {
	for _, fd := range o.files {
		unix.Close(fd)
	}
}

// forEach calls f for each child it finds, until f returns false. It may miss some if another thread waits for
// children meanwhile. It reports false if it has not read the list to its end.
func (o *childList) forEach(f func(pid int) (more bool)) (complete bool) {
	complete = true
	for _, fd := range o.files {
		pid := 0
		for at := int64(0); ; {
			n, err := unix.Pread(fd, o.buf, at) // a page at most
			if n <= 0 {
				complete = complete && err == nil
				break
			}
			at += int64(n)
			for _, c := range o.buf[:n] {
				if c >= '0' && c <= '9' {
					pid = 10*pid + int(c-'0')
				} else if pid != 0 {
					if !f(pid) {
						return false
					}
					pid = 0
				}
			}
		}
	}
	return complete
}

// portion calls f for one portion of the children.
func (o *childList) portion(f func(pid int)) {
	listed := 0
	o.forEach(func(pid int) (more bool) {
		f(pid)
		listed++
		return listed < portionListed
	})
}

// These limit one portion of what a kill does with a list of processes, so that its length does not depend on the
// work: meanwhile other work may have to be killed, and work that keeps forking runs on. The rest follows with the
// next portion.
const (
	portionReaped = 64      // exited children that are waited for
	portionListed = 4 << 10 // processes in a list
	portionOpened = 64      // files that are opened for a list
)

// reaper waits for exited children in portions.
type reaper struct {
	wait4 func(*syscall.WaitStatus) (pid int, err error) // nil for that of package nowait
	any   bool                                           // the last portion was not empty
	more  bool                                           // the last portion was full: others may have exited
}

// reap waits for one portion of the exited children, and calls exited for each. It reports whether the kernel says
// that this process has no children left.
func (r *reaper) reap(exited func(pid int, status syscall.WaitStatus)) (none bool) {
	wait4 := r.wait4
	if wait4 == nil {
		wait4 = nowait.Wait4
	}
	r.any, r.more = false, false
	for range portionReaped {
		var status syscall.WaitStatus
		pid, err := wait4(&status)
		if pid <= 0 { // none has exited, or wait4 failed
			return errors.Is(err, syscall.ECHILD)
		}
		r.any = true
		exited(pid, status)
	}
	r.more = true
	return false
}

// descendants returns one portion of the descendants of root, without the processes in except and their descendants:
// the nearest. It is good enough to kill them, but proves nothing. It includes zombies, as other threads of such a
// process may still run.
func descendants(root int, except ...int) []int { return nearest(childrenOf, root, except...) }

// nearest is descendants with a function that returns children of a process and how many files it has opened, limit at
// most.
func nearest(children func(pid, limit int) (all []int, opened int), root int, except ...int) (all []int) {
	next := []int{root}
	for left := portionOpened; len(next) > 0 && left > 0 && len(all) < portionListed; {
		found, opened := children(next[0], left)
		next, left = next[1:], left-opened
		for _, c := range found {
			if !slices.Contains(except, c) {
				next, all = append(next, c), append(all, c)
			}
		}
	}
	return all
}

// childrenOf returns children of a process, as far as they can be read with limit files, and how many files it has
// opened.
func childrenOf(pid, limit int) (all []int, opened int) {
	threads, err := os.Open(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, 1
	}
	defer threads.Close()
	names, _ := threads.Readdirnames(limit) // those that were read before an error
	for _, tid := range names {
		list, err := os.Open(fmt.Sprintf("/proc/%d/task/%s/children", pid, tid))
		if err != nil {
			continue // the thread has ended
		}
		data, _ := io.ReadAll(io.LimitReader(list, 8*portionListed))
		list.Close()
		data = data[:bytes.LastIndexByte(data, ' ')+1] // the limit may have cut a number
		for _, field := range bytes.Fields(data) {
			if child, err := strconv.Atoi(string(field)); err == nil {
				all = append(all, child)
			}
		}
	}
	return all, 1 + len(names)
}

// Process identifies a process of one boot of the host, even if its pid is reused.
type Process struct {
	Role    string `json:"role"`
	Pid     int    `json:"pid"`
	Started uint64 `json:"started"`
}

// Identify returns the Process with a pid, and whether it exists.
func Identify(role string, pid int) (Process, bool) {
	s, err := procinfo.ReadStat(pid)
	return Process{role, pid, s.Started}, err == nil
}

// Check returns an error unless the process runs and is a child of parent; 0 stands for any parent.
func (p Process) Check(parent int) error {
	s, err := procinfo.ReadStat(p.Pid)
	switch {
	case err != nil:
		return fmt.Errorf("the %s (process %d) is not running: %w", p.Role, p.Pid, err)
	case s.Ended():
		return fmt.Errorf("the %s (process %d) is dead", p.Role, p.Pid)
	case s.Started != p.Started:
		return fmt.Errorf("the %s has ended, and pid %d now belongs to another process", p.Role, p.Pid)
	case parent != 0 && s.Parent != parent:
		return fmt.Errorf("the %s (process %d) is a child of process %d, not of %d", p.Role, p.Pid, s.Parent, parent)
	}
	return nil
}

// checkEnded returns nil if the kernel says that the process has ended: the pid does not exist or belongs to another
// process, or all threads of the process have exited. An error says that the process runs, or that this could not be
// determined.
func (p Process) checkEnded() error {
	fd, err := unix.PidfdOpen(p.Pid, 0)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot determine whether the %s (process %d) has ended: %w", p.Role, p.Pid, err)
	}
	defer unix.Close(fd)
	if hasExited(fd) {
		return nil
	}
	s, err := procinfo.ReadStat(p.Pid)
	switch {
	case err != nil:
		return fmt.Errorf("cannot determine whether the %s (process %d) has ended: %w", p.Role, p.Pid, err)
	case s.Started != p.Started:
		return nil
	}
	return fmt.Errorf("the %s still runs as process %d", p.Role, p.Pid)
}

// hasExited reports whether the kernel says that all threads of the process behind a pidfd have exited.
func hasExited(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1 && fds[0].Revents&unix.POLLIN != 0
}

// processScan lists all processes in portions. It must be closed.
type processScan struct{ dir *os.File }

// next returns the pids of one portion, and whether it is the last one. Then next begins again.
func (s *processScan) next() (pids []int, last bool) {
	if s.dir == nil {
		var err error
		if s.dir, err = os.Open("/proc"); err != nil {
			return nil, true
		}
	}
	names, err := s.dir.Readdirnames(portionOpened)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	if err != nil { // the end, usually
		s.close()
	}
	return pids, err != nil
}

func (s *processScan) close() {
	if s.dir != nil {
		s.dir.Close()
		s.dir = nil
	}
}

// identifyingEnv returns the variables of an environment that distinguish one run of the work from every other: its
// node, root and term.
func identifyingEnv(env []string) []string {
	var vars []string
	for _, kv := range env {
		if strings.HasPrefix(kv, "ZKELECTD_") {
			vars = append(vars, kv)
		}
	}
	return vars
}

// pidsWithAnyEnv returns the pids of processes that have all variables of one of the sets in their environment, as far
// as that can be read. It is good enough to kill them, but proves nothing. An empty set matches none.
func pidsWithAnyEnv(sets [][]string) (all []int) {
	var scan processScan
	for {
		pids, last := scan.next()
		if all = append(all, withAnyEnv(pids, sets)...); last {
			return all
		}
	}
}

// withAnyEnv returns those of pids that have all variables of one set in their environment.
func withAnyEnv(pids []int, sets [][]string) (all []int) {
	sets = slices.DeleteFunc(sets, func(vars []string) bool { return len(vars) == 0 })
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil || pid == os.Getpid() {
			continue
		}
		env := strings.Split(string(data), "\x00")
		if slices.ContainsFunc(sets, func(vars []string) bool {
			return !slices.ContainsFunc(vars, func(kv string) bool { return !slices.Contains(env, kv) })
		}) {
			all = append(all, pid)
		}
	}
	return all
}
