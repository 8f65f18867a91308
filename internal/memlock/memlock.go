package memlock

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Options describe what a process needs to act on its own.
type Options struct {
	// Score is the oom_score_adj to ask for; the nearest permitted value is used.
	Score int
	// Procs bounds GOMAXPROCS, and with it how many threads the runtime may want at once.
	Procs int
	// Threads is how many threads exist from the start.
	Threads int
	// Heap is how many bytes of heap are touched beforehand.
	Heap int
	// Rehearse, if set, runs the code that has to work later, so that its pages are in memory when they are locked.
	Rehearse func()
	// Log gets one warning if not everything is permitted.
	Log *slog.Logger
}

// State is how a process is protected.
type State struct {
	// Mode is "all"; "program": the program and what memory was touched; "touched": of the program, too, only what was
	// touched, within the limit; or "none".
	Mode string
	// Locked is how much resident memory is locked, in bytes; what other processes share is counted in full.
	Locked int64
	// Score is the oom_score_adj in force.
	Score int
	// Err says what is not protected, and what to do; nil if nothing is missing.
	Err error
}

// Modes of locking.
const (
	modeAll     = "all"
	modeProgram = "program"
	modeTouched = "touched"
	modeNone    = "none"
)

var (
	mu    sync.Mutex
	state = State{Mode: modeNone}
)

// Protect protects this process for the rest of its life, as far as that is permitted. It is called once, early.
func Protect(opt Options) State {
	_ = time.Now().String() // reads the time zone's file
	runtime.GOMAXPROCS(min(opt.Procs, runtime.GOMAXPROCS(0)))
	startThreads(opt.Threads)
	score, scoreErr := lowerScore(opt.Score)
	debug.FreeOSMemory()
	mode, lockErr := lock(opt)

	mu.Lock()
	state = State{Mode: mode, Score: score, Err: missing(lockErr, scoreErr)}
	mu.Unlock()
	s := Current()
	if s.Err != nil {
		opt.Log.Warn("this process is not fully protected from a lack of memory", "err", s.Err, "locked_bytes", s.Locked, "oom_score_adj", s.Score)
	} else {
		opt.Log.Debug("this process is protected from a lack of memory", "locked_bytes", s.Locked, "oom_score_adj", s.Score)
	}
	return s
}

// Current returns how this process is protected now.
func Current() State {
	mu.Lock()
	defer mu.Unlock()
	s := state
	s.Locked = lockedBytes()
	return s
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
		dropProgram() // what starting up has touched is not what has to be locked
	}
	rehearse(opt)
	return mode, lockTouched(mode)
}

// Refresh locks what has been touched since [Protect], where that could not be locked beforehand.
func Refresh() {
	mu.Lock()
	defer mu.Unlock()
	if state.Mode == modeProgram || state.Mode == modeTouched {
		lockTouched(state.Mode) // what is missing was said by Protect
	}
}

func rehearse(opt Options) {
	touchHeap(opt.Heap)
	if opt.Rehearse != nil {
		opt.Rehearse()
	}
	runtime.GC() // part of what has to work
}

// touchHeap makes sure that the next n bytes of heap need nothing from the kernel.
func touchHeap(n int) {
	b := make([]byte, n)
	for i := 0; i < n; i += os.Getpagesize() {
		b[i] = 1
	}
	runtime.KeepAlive(b)
}

// missing returns what is lost, and how to get it; nil if both errors are.
func missing(lock, score error) error {
	switch {
	case lock != nil && score != nil:
		return fmt.Errorf("%w; %w", lock, score)
	case lock != nil:
		return lock
	}
	return score
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
