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
	k.readLease(t)
	if !t.needsSweep() && t.leaseExpired() || past(t.killAt) {
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

// readLease takes a later lease from the board when the one that is known has ended. The guard need not be able to act for that.
func (k *keeper) readLease(t *task) {
	if t.needsSweep() || boottime.Now() < t.lease+keeperDelay {
		return
	}
	if at := k.board.extended(t.slot, t.lease); at != t.lease {
		t.lease, t.lastChance = at, false
		k.checkKillable(t)
	}
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
			k.out.flush() // an exit that was not reported yet
			t.sweeps++
		}
		none := k.reap()
		if t.reaped && !t.group.populated() && (none || t.group != nil && !k.hasStrays(false)) {
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
	t.group.kill()
	if !t.launching && t.pid != 0 && !t.reaped {
		syscall.Kill(-t.pid, syscall.SIGKILL)
	}
}

// kill kills the processes of the work that it finds in one portion of their list.
func (k *keeper) kill(t *task) {
	k.killAtOnce(t)
	denied := 0
	if t.group == nil {
		denied = k.killChildren(t)
	} else {
		k.hasStrays(true)
	}
	switch now := boottime.Now(); {
	case t.sweeps == 0:
		t.killStarted = now
	case t.sweeps <= eagerSweeps && t.group == nil:
	case denied != 0:
		k.reportPermission(t, denied)
	case now-t.killStarted > unkillableAfter:
		k.reportUnkillable(t, fmt.Sprintf("some of the work still runs %s after SIGKILL, probably in state D (uninterruptible): see 'ps axo pid,stat,wchan,args'", unkillableAfter))
	}
}

// killChildren kills all descendants of this process, which has no other work. It returns one that it may not kill; 0 for none.
func (k *keeper) killChildren(t *task) (denied int) {
	killOne := func(pid int) {
		// While the work is being started, its pid belongs to the launcher.
		if group, err := syscall.Getpgid(pid); err == nil && !t.launching && group == t.pid {
			syscall.Kill(-t.pid, syscall.SIGKILL) // all at once, so that no member can fork meanwhile
		}
		if errors.Is(syscall.Kill(pid, syscall.SIGKILL), syscall.EPERM) {
			denied = pid
		}
	}
	listed := 0
	k.children.forEach(func(pid int) (more bool) {
		killOne(pid)
		listed++
		return listed < portionListed
	})
	if t.sweeps > 0 && !k.reaper.any { // this takes longer: the children of those that die will soon be in the list above
		for _, pid := range descendants(os.Getpid()) {
			killOne(pid)
		}
	}
	return denied
}

// hasStrays reports whether this process has, or may have, orphans that belong to no control group of its works,
// because they were moved to another group. Nobody knows whose they are, so no work counts as dead while there are
// any. With kill, it kills them. It stops when another work has to be killed.
func (k *keeper) hasStrays(kill bool) (found bool) {
	complete := k.children.forEach(func(pid int) (more bool) {
		if k.workOf(pid) != nil || k.inGroup(pid) {
			return !k.mustKill()
		}
		found = true
		if kill {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		return kill && !k.mustKill()
	})
	return found || !complete
}

// mustKill reports whether enforce may have to kill a work.
func (k *keeper) mustKill() bool {
	now := boottime.Now()
	for _, t := range k.works {
		if !t.needsSweep() && (enforced && now >= t.lease+keeperDelay || t.killAt != 0 && now >= t.killAt) {
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
	path := strings.TrimSuffix(cgroupPath(string(text)), " (deleted)") + "/"
	for _, t := range k.works {
		if t.group != nil && strings.HasPrefix(path, t.group.path+"/") {
			return true
		}
	}
	return false
}
