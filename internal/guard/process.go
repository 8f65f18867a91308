package guard

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"zkelectd/internal/procinfo"
)

// childList lists the direct children of this process without opening a file. It reads the lists of the main thread, which adopts
// orphans, and of the threads that start processes.
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

// forEach calls f for each child it finds. It may miss some if another thread waits for children meanwhile. It reports false if the
// list could not be read to its end.
func (o *childList) forEach(f func(pid int)) (complete bool) {
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
					f(pid)
					pid = 0
				}
			}
		}
	}
	return complete
}

// descendants returns the descendants of root that it finds, without the processes in except and their descendants. It is
// good enough to kill them, but proves nothing. It includes zombies, as other threads of such a process may still run.
func descendants(root int, except ...int) []int {
	var all []int
	next := []int{root}
	for len(next) > 0 {
		pid := next[0]
		next = next[1:]
		for _, c := range childrenOf(pid) {
			if !slices.Contains(except, c) {
				next, all = append(next, c), append(all, c)
			}
		}
	}
	return all
}

// childrenOf returns the children of a process, as far as they can be read.
func childrenOf(pid int) []int {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil
	}
	var all []int
	for _, path := range lists {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range bytes.Fields(data) {
			if child, err := strconv.Atoi(string(field)); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
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

// checkEnded returns nil if the kernel says that the process has ended: the pid does not exist or belongs to another process,
// or all threads of the process have exited. An error says that the process runs, or that this could not be determined.
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

// hasExited reports whether all threads of the process behind a pidfd have exited.
func hasExited(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	if err == nil {
		return n == 1 && fds[0].Revents&unix.POLLIN != 0
	}
	// poll fails if RLIMIT_NOFILE is lower than the number of files polled.
	return errors.Is(unix.PidfdSendSignal(pidfd, 0, nil, 0), unix.ESRCH)
}

// allPids returns the pids of all processes.
func allPids() []int {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	var all []int
	for _, dir := range dirs {
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// identifyingEnv returns the variables of an environment that distinguish one run of the work from every other: its node, root
// and term.
func identifyingEnv(env []string) []string {
	var vars []string
	for _, kv := range env {
		if strings.HasPrefix(kv, "ZKELECTD_") {
			vars = append(vars, kv)
		}
	}
	return vars
}

// pidsWithEnv returns the pids of processes that have all of vars in their environment, as far as that can be read. It is good
// enough to kill them, but proves nothing. For no variables it returns none.
func pidsWithEnv(vars []string) []int { return pidsWithAnyEnv([][]string{vars}) }

// pidsWithAnyEnv is pidsWithEnv for several sets of variables: a process must have all of one set.
func pidsWithAnyEnv(sets [][]string) []int {
	sets = slices.DeleteFunc(sets, func(vars []string) bool { return len(vars) == 0 })
	if len(sets) == 0 {
		return nil
	}
	var all []int
	for _, pid := range allPids() {
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
