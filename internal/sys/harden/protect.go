// Package harden keeps a process able to act while memory is short and the disk is stalled, and keeps its secrets out
// of core dumps.
//
// [Protect] keeps the program's pages in memory, makes the OOM killer prefer other processes, and starts the threads
// that the Go runtime needs. It locks memory in one of two ways:
//
//   - Without a limit (RLIMIT_MEMLOCK is infinite, or the process has CAP_IPC_LOCK), everything: the program's file is
//     read and locked as a whole, the rest when it is touched (mlockall with MCL_ONFAULT). All processes of one program
//     share its pages, so a second process that locks them costs page tables only.
//   - With a limit, the program if it fits, and the pages that the rehearsal has touched, one by one. MCL_FUTURE is not
//     an option there: the kernel charges a mapping in full, touched or not, and the Go runtime ends the process when
//     mmap fails.
//
// It does not keep the kernel from reclaiming what system calls need, and it does not lock the memory of other
// processes: locks are not inherited. [WithChildScore] starts children without this process's OOM score.
package harden

import (
	"errors"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Options describe what a process needs in order to act on its own.
type Options struct {
	// OOMScore is the oom_score_adj to set; if that is not permitted, the nearest permitted value is used.
	OOMScore int
	// Procs bounds GOMAXPROCS, and with it how many threads the runtime may need at once.
	Procs int
	// LeastProcs is the least GOMAXPROCS, even on a host with fewer processors.
	LeastProcs int
	// Threads is how many threads are started in advance.
	Threads int
	// Heap is how many bytes of heap are touched in advance.
	Heap int
	// Rehearse, if not nil, runs the code that has to work later, so that its pages are in memory when they are locked.
	Rehearse func()
	// Log receives one warning if something is not permitted.
	Log *slog.Logger
}

// What of this process is locked in memory.
const (
	modeAll     = "all"
	modeProgram = "program" // the program, and the memory that was touched
	modeTouched = "touched" // those pages of the program and of memory that were touched, within the limit
	modeNone    = "none"
)

var (
	mu         sync.Mutex
	protection = modeNone
)

// Protect protects this process for the rest of its life, as far as permitted. Call it once, early.
func Protect(opt Options) {
	_ = time.Now().String() // reads the time zone file
	runtime.GOMAXPROCS(max(opt.LeastProcs, min(opt.Procs, runtime.GOMAXPROCS(0))))
	startThreads(opt.Threads)
	score, scoreErr := lowerScore(opt.OOMScore)
	debug.FreeOSMemory()
	locked, lockErr := lock(opt)
	mu.Lock()
	protection = locked
	mu.Unlock()
	if err := errors.Join(lockErr, scoreErr); err != nil {
		opt.Log.Warn("this process is not fully protected from a memory shortage", "err", err, "oom_score_adj", score)
	} else {
		opt.Log.Debug("this process is protected from a memory shortage", "locked", locked, "oom_score_adj", score)
	}
}

// lock locks this process's memory and returns the mode.
func lock(opt Options) (string, error) {
	if unlimited() {
		if err := lockProgram(); err != nil {
			return modeNone, err
		}
		if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
			return modeNone, os.NewSyscallError("mlockall", err)
		}
		rehearse(opt)
		return modeAll, nil
	}
	mode := modeTouched
	if fits() && lockProgram() == nil {
		mode = modeProgram
	} else {
		dropProgram() // the pages touched during startup are not those that have to be locked
	}
	rehearse(opt)
	return mode, lockTouched(mode)
}

// RefreshLocks locks the pages touched since [Protect], where they could not be locked in advance.
func RefreshLocks() {
	mu.Lock()
	defer mu.Unlock()
	if protection == modeProgram || protection == modeTouched {
		lockTouched(protection) // Protect has already logged what is missing
	}
}

func rehearse(opt Options) {
	touchHeap(opt.Heap)
	if opt.Rehearse != nil {
		opt.Rehearse()
	}
	runtime.GC() // has to work later, too
}

// touchHeap makes sure that the next n bytes of heap need no new page from the kernel.
func touchHeap(n int) {
	b := make([]byte, n)
	for i := 0; i < n; i += os.Getpagesize() {
		b[i] = 1
	}
	runtime.KeepAlive(b)
}

// unlimited reports whether this process may lock any amount of memory. It raises the soft limit if that is enough.
func unlimited() bool {
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &was); err != nil {
		return false
	}
	if was.Max == unix.RLIM_INFINITY {
		return was.Cur == was.Max || unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: was.Max, Max: was.Max}) == nil
	}
	// With a limit of 0 only CAP_IPC_LOCK permits a lock, and only one that the kernel honors: in a user namespace the
	// capability exists, and means nothing here.
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 0, Max: was.Max}); err != nil {
		return false
	}
	page := probe[:1]
	err := unix.Mlock(page)
	if err == nil {
		unix.Munlock(page)
		unix.Setrlimit(unix.RLIMIT_MEMLOCK, &was)
		return true
	}
	unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: was.Max, Max: was.Max})
	return false
}

var probe [1]byte
