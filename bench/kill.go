package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/boottime"
	"zkelectd/internal/cluster"
	"zkelectd/internal/test/zkserver"
)

// leaseKill measures how long after the end of the lease the last process of the work is dead if the daemon is stopped, for each
// containment, with and without a real-time priority, while a number of programs keep the processors busy. One of the processes of
// the work has left its parent, its session and its environment.
func leaseKill(ctx context.Context, t *table, binary string, rounds, programs int) error {
	idle, err := busy(programs)
	defer idle()
	if err != nil {
		return err
	}
	late, err := killsAtLeaseEnd(ctx, binary, rounds)
	if err != nil {
		return err
	}
	for _, by := range killers {
		slices.Sort(late[by])
		worst := late[by][rounds-1]
		what := "lease's end to the last process dead, " + by.String()
		t.add(fmt.Sprintf("%s, p50 of %d", what, rounds), ms(quantile(late[by], 0.5)), "load "+loadAverage(), "", true)
		t.add(what+", p99", ms(quantile(late[by], 0.99)), "", "", true)
		t.add(what+", worst", ms(worst), fmt.Sprintf("%.3f of K", float64(worst)/float64(cluster.MinKill)), "<= K", worst <= cluster.MinKill)
	}
	return nil
}

// killer is a configuration with which the work is killed.
type killer struct {
	containment string
	realtime    bool
}

func (k killer) String() string {
	if k.realtime {
		return k.containment + ", guard.realtime"
	}
	return k.containment
}

// killers are measured alternately.
var killers = []killer{{"cgroup", false}, {"pidns", false}, {"keeper", false}, {"cgroup", true}, {"pidns", true}, {"keeper", true}}

// loadAverage returns the load average of the machine for the last minute.
func loadAverage() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err.Error()
	}
	last, _, _ := strings.Cut(string(data), " ")
	return last
}

// busy starts programs that use all the processor time they get; idle kills them.
func busy(n int) (idle func(), err error) {
	var all []*exec.Cmd
	idle = func() {
		for _, cmd := range all {
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			cmd.Wait()
		}
	}
	for range n {
		cmd := exec.Command("sh", "-c", "while :; do :; done")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			return idle, err
		}
		all = append(all, cmd)
	}
	return idle, nil
}

// work is a script that runs three processes with a mark in their arguments: its main process, one in its process group, and one
// that is not related to it.
const (
	work = `sleep 100000 "$0" &
(env -i setsid sh -c "sleep 100000 $0 &" &)
exec sleep 100000 "$0"`
	workers = 3
)

// killsAtLeaseEnd repeatedly starts a node and stops its daemon. It returns the times by configuration.
func killsAtLeaseEnd(ctx context.Context, binary string, rounds int) (map[killer][]time.Duration, error) {
	g, err := newGroup(ctx, zkserver.Options{})
	if err != nil {
		return nil, err
	}
	defer g.close()
	mark := fmt.Sprintf("0.%d", os.Getpid())
	late := make(map[killer][]time.Duration)
	started := 0
	for range rounds {
		for _, by := range killers {
			for {
				started++ // a new node, since the one before is excluded for losing its lease
				d, err := g.killOne(ctx, binary, by, fmt.Sprintf("n%d", started), mark)
				if errors.Is(err, errLost) {
					continue // the machine was too busy for such a short session: try again
				}
				if err != nil {
					return nil, err
				}
				if *verbose {
					fmt.Fprintln(os.Stderr, "bench:", by, d)
				}
				late[by] = append(late[by], d)
				break
			}
		}
	}
	return late, nil
}

// killOne starts a node, stops its daemon, and returns how long its work outlived the lease.
func (g *group) killOne(ctx context.Context, binary string, by killer, id, mark string) (time.Duration, error) {
	const (
		timeout = 2 * time.Second
		api     = "127.0.0.1:17980"
	)
	n, err := g.spawnWork(g.server.Addr(), binary, id, timeout, []string{"sh", "-c", work, mark},
		"ZKELECTD_HTTP_LISTEN="+api, "ZKELECTD_CHILD_CONTAINMENT="+by.containment, "ZKELECTD_GUARD_REALTIME="+strconv.FormatBool(by.realtime))
	if err != nil {
		return 0, err
	}
	defer n.stop()
	if err := g.leads(ctx, id); err != nil {
		return 0, err
	}
	return n.killAtLeaseEnd(ctx, api, mark, timeout*45/100)
}

// errLost means that the leader lost its lease before it could be measured.
var errLost = errors.New("the leader lost its lease")

// killAtLeaseEnd stops the daemon just after a renewal, so that no renewal is in progress, until its work is dead. It returns the
// time from the end of the lease to the death of the work.
func (n *node) killAtLeaseEnd(ctx context.Context, api, mark string, lease time.Duration) (time.Duration, error) {
	daemon, err := n.daemon()
	if err != nil {
		return 0, err
	}
	var pids []int
	for len(pids) != workers {
		if pids, err = marked(ctx, mark); err != nil {
			return 0, err
		}
	}
	fds := make([]int, 0, workers)
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return 0, os.NewSyscallError("pidfd_open", err)
		}
		fds = append(fds, fd)
	}
	var ends time.Duration
	for began := boottime.Now(); ; {
		requested := boottime.Now()
		if requested-began > 10*lease {
			return 0, errLost
		}
		end, err := leaseEnd(ctx, api)
		if err != nil {
			return 0, err
		}
		// Renewals come every third of the lease, at least.
		if answered := boottime.Now(); end-answered > lease*8/10 && answered-requested < lease/20 {
			ends = end - (answered - requested) // the earliest possible end
			break
		}
	}
	restore, err := raisePriority()
	if err != nil {
		return 0, err
	}
	defer restore()
	syscall.Kill(daemon, syscall.SIGSTOP)
	defer syscall.Kill(daemon, syscall.SIGCONT)
	for _, fd := range fds {
		if err := exited(ctx, fd); err != nil {
			return 0, err
		}
	}
	return boottime.Now() - ends, nil
}

// raisePriority gives this thread a real-time priority above that of guard and keeper, so that it does not measure its own wait for a
// processor. It needs root.
func raisePriority() (restore func(), err error) {
	runtime.LockOSThread()
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 2, Flags: unix.SCHED_FLAG_RESET_ON_FORK}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("measuring the time of a kill needs a real-time thread: %w: run this as root", os.NewSyscallError("sched_setattr", err))
	}
	return func() {
		unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}, 0)
		runtime.UnlockOSThread()
	}, nil
}

// marked returns the processes with the mark in their arguments, except for shells.
func marked(ctx context.Context, mark string) (pids []int, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err != nil {
			continue // it has ended
		}
		if args := strings.Split(string(line), "\x00"); args[0] == "sleep" && slices.Contains(args, mark) {
			pids = append(pids, pid)
		}
	}
	return pids, ctx.Err()
}

// exited waits until a process has ended.
func exited(ctx context.Context, pidfd int) error {
	for ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 1000)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("poll", err)
		}
		if n > 0 {
			return nil
		}
	}
	return ctx.Err()
}
