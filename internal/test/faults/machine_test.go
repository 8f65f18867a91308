package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/test/faultproxy"
	"zkelectd/internal/test/hostfault"
)

// machineFaults affect the machine on which a node runs.
var machineFaults = []fault{
	{"disk stalled, pages reclaimed", stallDisk(noOtherFault)},
	{"disk stalled, pages reclaimed, daemon cut off", stallDisk(cutOff)},
	{"memory limit, disk stalled", limitMemory},
	{"the kernel kills the daemon for memory", outOfMemory},
	{"daemon gets 1 % of a processor", starve(1, 100, daemonProcess)},
	{"guard gets 1 % of a processor", starve(1, 100, guardProcess)},
	{"keeper gets 1 % of a processor", starve(1, 100, keeperProcess)},
	{"guard, keeper and daemon get 30 % of a processor", starve(15, 50, zkelectdProcesses...)},
	{"processors are busy", burnProcessors},
	{"no descriptors left for the guard, then cut off", takeDescriptors(guardProcess)},
	{"no descriptors left for the keeper, then cut off", takeDescriptors(keeperProcess)},
	{"no descriptors left for the daemon, then cut off", takeDescriptors(daemonProcess)},
}

func noOtherFault(*node) func() { return noHeal }

// cutOff drops all data between a node and the servers.
func cutOff(n *node) func() { return setModes(faultproxy.BlackHole, n.proxies...) }

// repeatUntil repeats do until the returned function is called.
func repeatUntil(pause time.Duration, do func()) (end func()) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			do()
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	})
	return func() {
		close(stop)
		wg.Wait()
	}
}

// stallDisk stalls the disk with a node's program, and makes the kernel reclaim what memory it can.
func stallDisk(and func(*node) func()) func(*fleet) (func(), error) {
	return func(f *fleet) (func(), error) {
		n := f.victim()
		n.disk.Stall(true)
		reclaim := repeatUntil(50*time.Millisecond, func() {
			n.memory.Set("memory.force_empty", "0") // as far as possible
		})
		heal := and(n)
		return func() {
			heal()
			n.disk.Stall(false)
			reclaim()
		}, nil
	}
}

// startInMemoryGroup starts this program in a node's memory group. With a higher score the OOM killer prefers it.
func (n *node) startInMemoryGroup(score int, args ...string) (*exec.Cmd, error) {
	script := fmt.Sprintf(`echo 0 >%s/cgroup.procs && echo %d >/proc/$$/oom_score_adj && exec "$@"`, n.memory.Dir, score)
	cmd := exec.Command("sh", append([]string{"-c", script, "sh", self}, args...)...)
	return cmd, cmd.Start()
}

// limit limits the memory of a node to what is in use and some more.
func (n *node) limit(more int64) error {
	used, err := n.memory.Number("memory.usage_in_bytes")
	if err != nil {
		return err
	}
	return n.memory.Set("memory.limit_in_bytes", strconv.FormatInt(used+more, 10))
}

// unlimit ends a limit of the memory, and the program that has used it.
func (n *node) unlimit(cmd *exec.Cmd) {
	if err := n.memory.Set("memory.limit_in_bytes", "-1"); err != nil {
		n.f.t.Error(err)
	}
	cmd.Process.Kill()
	cmd.Wait()
}

// limitMemory leaves zkelectd and its child almost no memory for file pages, as their group is at its limit, and stalls the disk.
func limitMemory(f *fleet) (func(), error) {
	n := f.victim()
	if err := n.limit(32 << 20); err != nil {
		return nil, err
	}
	cmd, err := n.startInMemoryGroup(1000, hogArgument, n.memory.Dir, f.file(hogArgument))
	if err != nil {
		return nil, err
	}
	f.wait(500 * time.Millisecond)
	n.disk.Stall(true)
	return func() {
		n.disk.Stall(false)
		n.unlimit(cmd)
	}, nil
}

// outOfMemory makes the OOM killer kill the daemon, which has the highest score in the node's memory group.
func outOfMemory(f *fleet) (func(), error) {
	n := f.victim()
	daemons := n.pids()[daemonProcess]
	if len(daemons) == 0 || !n.isPromised([]string{daemonProcess}, nil) {
		return nil, errNotPromised
	}
	daemon := daemons[0]
	n.killed[daemonProcess] = time.Now()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", daemon), []byte("1000"), 0); err != nil {
		return nil, errNotPromised // it has ended
	}
	if err := n.limit(16 << 20); err != nil {
		return nil, err
	}
	cmd, err := n.startInMemoryGroup(0, memoryArgument, strconv.Itoa(daemon))
	if err != nil {
		return nil, err
	}
	return func() { n.unlimit(cmd) }, nil
}

// starve limits some of a node's processes to quota milliseconds of processor time in each period, in total.
func starve(quota, period int, who ...string) func(*fleet) (func(), error) {
	return func(f *fleet) (func(), error) {
		n := f.victim()
		pids := n.pids()
		if quota*5 < period && !n.isPromised(nil, who) {
			return nil, errNotPromised // as if they were stopped
		}
		f.starving++
		g, err := n.cpu.Child(strconv.Itoa(f.starving))
		if err == nil {
			err = errors.Join(g.Set("cpu.cfs_period_us", strconv.Itoa(1000*period)), g.Set("cpu.cfs_quota_us", strconv.Itoa(1000*quota)))
		}
		if err != nil {
			return nil, err
		}
		var starved []int
		for _, name := range who {
			starved = append(starved, pids[name]...)
		}
		for _, pid := range starved {
			if g.Add(pid) == nil && quota*5 < period {
				n.starvedPids[pid] = true
			}
		}
		return func() {
			if err := g.Set("cpu.cfs_quota_us", "-1"); err != nil {
				f.t.Error(err)
			}
			n.emptyGroup(g)
			for _, pid := range starved {
				delete(n.starvedPids, pid)
			}
		}, nil
	}
}

// emptyGroup moves the processes of a group back and removes the group. If processes fork meanwhile, it may remain until the node
// is shut down.
func (n *node) emptyGroup(g hostfault.ControlGroup) {
	for range 10 {
		pids, err := g.Pids()
		if err != nil || len(pids) == 0 {
			break
		}
		for _, pid := range pids {
			n.cpu.Add(pid)
		}
	}
	if os.Remove(g.Dir) != nil {
		n.emptyGroups = append(n.emptyGroups, g)
	}
}

// burnProcessors keeps all processors busy, with more than one program each.
func burnProcessors(f *fleet) (func(), error) {
	var all []*exec.Cmd
	heal := func() {
		for _, cmd := range all {
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			cmd.Wait()
		}
	}
	for range 6 {
		cmd := exec.Command("nice", "-n", strconv.Itoa(f.rng.IntN(6)), "sh", "-c", "while :; do :; done")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			heal()
			return nil, err
		}
		all = append(all, cmd)
	}
	return heal, nil
}

// takeDescriptors keeps a process from opening files, and cuts its node off.
func takeDescriptors(who string) func(*fleet) (func(), error) {
	return func(f *fleet) (func(), error) {
		n := f.victim()
		pids := n.pids()[who]
		var before unix.Rlimit
		if len(pids) == 0 || unix.Prlimit(pids[0], unix.RLIMIT_NOFILE, nil, &before) != nil {
			return nil, errNotPromised // it does not run
		}
		pid := pids[0]
		// The hard limit could be raised again only with CAP_SYS_RESOURCE.
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Max: before.Max}, nil); err != nil {
			return nil, errNotPromised
		}
		join := cutOff(n)
		return func() {
			join()
			unix.Prlimit(pid, unix.RLIMIT_NOFILE, &before, nil)
		}, nil
	}
}
