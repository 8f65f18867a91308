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

// offspring lists the direct children of this process without opening anything: the lists of its first thread, to which
// the kernel gives orphans, and of the thread that starts processes.
type offspring struct {
	lists []int // descriptors of /proc/self/task/TID/children
	text  []byte
}

// newOffspring must be called on the thread that starts processes.
func newOffspring() (*offspring, error) {
	o := &offspring{text: make([]byte, 64<<10)}
	threads := []int{os.Getpid()}
	if tid := unix.Gettid(); tid != os.Getpid() {
		threads = append(threads, tid)
	}
	for _, tid := range threads {
		fd, err := unix.Open(fmt.Sprintf("/proc/self/task/%d/children", tid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			o.close()
			return nil, fmt.Errorf("cannot list child processes (is /proc mounted, and CONFIG_PROC_CHILDREN set?): %w", err)
		}
		o.lists = append(o.lists, fd)
	}
	return o, nil
}

func (o *offspring) close() {
	for _, fd := range o.lists {
		unix.Close(fd)
	}
}

// each calls f for the children found. Some may be missed while others end: that there are none is for wait4 to say.
func (o *offspring) each(f func(pid int)) {
	for _, fd := range o.lists {
		n, err := unix.Pread(fd, o.text, 0)
		if err != nil {
			continue
		}
		pid := 0
		for _, c := range o.text[:n] {
			if c >= '0' && c <= '9' {
				pid = 10*pid + int(c-'0')
			} else if pid != 0 {
				f(pid)
				pid = 0
			}
		}
	}
}

// descendants lists the processes below a process, without spare and what is below that, as far as they can be found: it
// serves to kill, and proves nothing. A zombie counts: until it is reaped it may have threads that run.
func descendants(root int, spare ...int) []int {
	var all []int
	next := []int{root}
	for len(next) > 0 {
		pid := next[0]
		next = next[1:]
		for _, c := range listed(pid) {
			if !slices.Contains(spare, c) {
				next, all = append(next, c), append(all, c)
			}
		}
	}
	return all
}

func listed(pid int) []int {
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

// Process names a process of one boot for good.
type Process struct {
	Role    string `json:"role"`
	Pid     int    `json:"pid"`
	Started uint64 `json:"started"`
}

// Identify names a running process.
func Identify(role string, pid int) (Process, bool) {
	s, err := procinfo.ReadStat(pid)
	return Process{role, pid, s.Started}, err == nil
}

// Check returns an error unless the process runs, and parent is its parent, or 0.
func (p Process) Check(parent int) error {
	s, err := procinfo.ReadStat(p.Pid)
	switch {
	case err != nil:
		return fmt.Errorf("the %s, process %d, does not run: %w", p.Role, p.Pid, err)
	case s.Ended():
		return fmt.Errorf("the %s, process %d, is dead", p.Role, p.Pid)
	case s.Started != p.Started:
		return fmt.Errorf("the %s has ended, and process %d is another by now", p.Role, p.Pid)
	case parent != 0 && s.Parent != parent:
		return fmt.Errorf("the %s, process %d, is not below process %d, but below %d", p.Role, p.Pid, parent, s.Parent)
	}
	return nil
}

// ended returns nil if the kernel says that the process has ended: there is none with that pid, another one has it, or all
// of its threads are gone. An error says that it runs, or that this could not be found out.
func (p Process) ended() error {
	fd, err := unix.PidfdOpen(p.Pid, 0)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("whether the %s (process %d) has ended cannot be told: %w", p.Role, p.Pid, err)
	}
	defer unix.Close(fd)
	if exited(fd) {
		return nil
	}
	s, err := procinfo.ReadStat(p.Pid)
	switch {
	case err != nil:
		return fmt.Errorf("whether the %s (process %d) has ended cannot be told: %w", p.Role, p.Pid, err)
	case s.Started != p.Started:
		return nil
	}
	return fmt.Errorf("the %s still runs as process %d", p.Role, p.Pid)
}

// exited reports whether all threads of the process behind a pidfd have ended.
func exited(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	if err == nil {
		return n == 1 && fds[0].Revents&unix.POLLIN != 0
	}
	// A process that may have no files open may not poll either.
	return errors.Is(unix.PidfdSendSignal(pidfd, 0, nil, 0), unix.ESRCH)
}

// processes are the ids of all there are.
func processes() []int {
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

// stamp picks out of an environment what distinguishes one piece of work from every other: node, root and term.
func stamp(env []string) []string {
	var marks []string
	for _, kv := range env {
		if strings.HasPrefix(kv, "ZKELECTD_") {
			marks = append(marks, kv)
		}
	}
	return marks
}

// stamped lists the processes with all these variables in their environment, as far as that can be read: it serves to
// kill, and proves nothing. Without any marks nothing is.
func stamped(marks []string) []int {
	if len(marks) == 0 {
		return nil
	}
	var all []int
	for _, pid := range processes() {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil || pid == os.Getpid() {
			continue
		}
		env := strings.Split(string(data), "\x00")
		if !slices.ContainsFunc(marks, func(m string) bool { return !slices.Contains(env, m) }) {
			all = append(all, pid)
		}
	}
	return all
}
