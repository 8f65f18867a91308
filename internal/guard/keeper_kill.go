package guard

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"zkelectd/internal/sys/boottime"
)

// enforce begins to kill the work if it may not run any longer, without a list of processes.
func (k *keeper) enforce(t *task) {
	if t.isOver() {
		t.killing = true
	}
	if t.killing && t.sweeps == 0 {
		k.killAtOnce(t)
	}
}

// conclude kills what is left of the work, and reports its death.
func (k *keeper) conclude(t *task) {
	if t.killing {
		if err := k.launcher.cancel(t); err != nil {
			k.failed(t, err)
			return
		}
	}
	if !k.sweep(t) {
		return
	}
	t.writeState(stateDead)
	if t.unkillable != "" {
		k.send(message{Kind: kindUnkillable, Seq: t.seq})
	}
	k.send(message{Kind: kindDead, Seq: t.seq, Output: t.output.close()})
	delete(k.works, t.seq)
	t.close()
}

// nextCheck returns when advance has to be called next; 0 if only after an event.
func (k *keeper) nextCheck() (at time.Duration) {
	for _, t := range k.works {
		at = earliest(at, t.nextCheck())
	}
	if k.out.pending() {
		at = earliest(at, boottime.Now()+flushInterval)
	}
	if k.reaper.more {
		at = 1
	}
	return at
}

// sweep kills what is left of work that is to be killed or whose main process has ended. It reports whether the kernel
// says that nothing is left (A3): this process, which adopts all orphans, has no child that may belong to the work,
// and the control group is empty. Work that is to be killed is killed before this process waits for exited children:
// if it keeps forking, there are always more of these.
func (k *keeper) sweep(t *task) (dead bool) {
	for range eagerSweeps {
		if !t.needsSweep() {
			return false
		}
		due := boottime.Now() >= t.nextSweep
		if due && t.killing {
			k.kill(t)
			t.sweeps++
		}
		k.reap()
		if t.reaped && t.group.Empty() == nil && k.nothingListed(t) {
			return true // also between two sweeps: the last process has exited since
		}
		switch {
		case !due:
			return false
		case !t.killing:
			t.killing = true // something is left
		case t.sweeps > eagerSweeps || t.group != nil: // the kernel kills a control group at once
			k.delaySweep(t)
		}
	}
	k.delaySweep(t)
	return false
}

// delaySweep schedules the next sweep. There is no pause while children exit: the work may keep forking.
func (k *keeper) delaySweep(t *task) {
	if t.group == nil && k.reaper.any {
		t.nextSweep, t.sweepDelay = 0, 0
		return
	}
	t.nextSweep = boottime.Now() + nextDelay(&t.sweepDelay)
}

// killAtOnce kills as much of the work as it can without a list of processes, and without opening a file.
func (k *keeper) killAtOnce(t *task) {
	t.group.Kill()
	if !t.launching && t.pid != 0 && !t.reaped {
		syscall.Kill(-t.pid, syscall.SIGKILL)
	}
}

// kill kills the processes of the work that it finds in one portion of their list.
func (k *keeper) kill(t *task) {
	k.killAtOnce(t)
	err := k.killListed(t)
	switch now := boottime.Now(); {
	case t.sweeps == 0:
		t.killStarted = now
	case t.sweeps <= eagerSweeps && t.group == nil:
	case err != nil:
		k.reportUnkillable(t, err.Error())
	case now-t.killStarted > unkillableAfter:
		k.reportUnkillable(t, fmt.Sprintf("some of the work still runs %s after SIGKILL, probably in state D "+
			"(uninterruptible): see 'ps axo pid,stat,wchan,args'", unkillableAfter))
	}
}

// nothingListed reports whether the kernel says that no child of this process, which adopts all orphans, may belong
// to the work. Children that are in no control group, because they were moved to another one, may belong to any work.
func (k *keeper) nothingListed(t *task) bool {
	return k.none || t.group != nil && k.eachStray(func(int) bool { return false })
}

// killListed kills one portion of what only the list of this process's children shows of the work.
func (k *keeper) killListed(t *task) error {
	if t.group == nil {
		return k.killDescendants()
	}
	k.eachStray(func(pid int) bool {
		syscall.Kill(pid, syscall.SIGKILL)
		return !k.mustKill()
	})
	return nil
}

// killDescendants kills one portion of the descendants, all of which belong to the only work of a keeper without
// control groups. A [deniedError] is one that it may not kill.
func (k *keeper) killDescendants() (err error) {
	killOne := func(pid int) {
		if group, err := syscall.Getpgid(pid); err == nil && k.leads(group) {
			syscall.Kill(-group, syscall.SIGKILL) // all at once, so that no member can fork meanwhile
		}
		if errors.Is(syscall.Kill(pid, syscall.SIGKILL), syscall.EPERM) {
			err = deniedError(pid)
		}
	}
	k.children.portion(killOne)
	again := false
	for _, t := range k.works {
		again = again || t.sweeps > 0
	}
	if again && !k.reaper.any { // this takes longer: the children of those that die will soon be in the list above
		for _, pid := range descendants(os.Getpid()) {
			killOne(pid)
		}
	}
	return err
}

// leads reports whether a process group is that of a work. While work is being started, its pid belongs to the
// launcher.
func (k *keeper) leads(group int) bool {
	for _, t := range k.works {
		if !t.launching && t.pid == group {
			return true
		}
	}
	return false
}

// eachStray calls f for each stray, until f returns false or other work has to be killed. It reports whether it came to
// the end of the list.
func (k *keeper) eachStray(f func(pid int) (more bool)) (complete bool) {
	return k.children.forEach(func(pid int) (more bool) {
		if k.workOf(pid) != nil || k.inGroup(pid) {
			return !k.mustKill()
		}
		return f(pid)
	})
}

// mustKill reports whether enforce has to kill a work.
func (k *keeper) mustKill() bool {
	for _, t := range k.works {
		if t.isOver() {
			return true
		}
	}
	return false
}

// inGroup reports whether a process is in the control group of one of the works.
func (k *keeper) inGroup(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return false
	}
	dir := k.mount + strings.TrimSuffix(cgroupPath(string(text)), " (deleted)") + "/"
	for _, t := range k.works {
		if t.group != nil && strings.HasPrefix(dir, t.group.dir+"/") {
			return true
		}
	}
	return false
}
