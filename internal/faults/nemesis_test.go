package faults

import (
	"errors"
	"os"
	"slices"
	"syscall"
	"time"
)

// fault is one kind of trouble. inject begins it and returns what ends it. The error is errNotPromised where docs/safety.md
// promises nothing for what has come together, and nothing was done.
type fault struct {
	name   string
	inject func(f *fleet) (heal func(), err error)
}

var kinds = slices.Concat(processFaults, machineFaults, networkFaults, serverFaults, znodeFaults, requests)

var errNotPromised = errors.New("nothing is promised for this")

func nothing() {}

// pass lets time pass.
func (f *fleet) pass(d time.Duration) {
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-over.C:
	case <-f.t.Context().Done():
	}
}

// processFaults are what happens to the processes of a node, which is mostly the leader's.
var processFaults = []fault{
	{"kill -9 of the daemon", kill(daemonProcess)},
	{"kill -9 of the guard", kill(guardProcess)},
	{"kill -9 of the keeper", kill(keeperProcess)},
	{"kill -9 of the child", kill(childProcess)},
	{"kill -9 of guard and daemon", kill(guardProcess, daemonProcess)},
	{"kill -9 of guard and keeper", kill(guardProcess, keeperProcess)},
	{"kill -9 of daemon and keeper", kill(daemonProcess, keeperProcess)},
	{"kill -9 of guard, daemon and keeper", kill(guardProcess, daemonProcess, keeperProcess)},
	{"loss of the host", loseHost},
	{"SIGSTOP of the daemon", stop(daemonProcess)},
	{"SIGSTOP of the guard", stop(guardProcess)},
	{"SIGSTOP of the keeper", stop(keeperProcess)},
	{"SIGSTOP of the child", stop(childProcess)},
	{"SIGSTOP of the guard, kill -9 of the daemon", stopAndKill(guardProcess, daemonProcess)},
	{"SIGSTOP of the daemon, kill -9 of the guard", stopAndKill(daemonProcess, guardProcess)},
	{"policy changed", flip},
	{"child ignores TERM", behave(ignores)},
	{"child daemonizes with a bare environment", behave(daemonizes)},
	{"child forks every millisecond", behave(forks)},
}

func kill(who ...string) func(*fleet) (func(), error) {
	return func(f *fleet) (func(), error) {
		if !f.victim().kill(who...) {
			return nil, errNotPromised
		}
		return nothing, nil
	}
}

func stop(who ...string) func(*fleet) (func(), error) {
	return func(f *fleet) (func(), error) {
		if heal := f.victim().stop(who...); heal != nil {
			return heal, nil
		}
		return nil, errNotPromised
	}
}

// stopAndKill stops one process, and a while later, up to a lease, kills another.
func stopAndKill(still, dead string) func(*fleet) (func(), error) {
	return func(f *fleet) (func(), error) {
		n := f.victim()
		if !n.promised([]string{dead}, []string{still}) {
			return nil, errNotPromised
		}
		heal := n.stop(still)
		if heal == nil {
			return nil, errNotPromised
		}
		f.pass(time.Duration(f.rng.Int64N(int64(sessionTimeout / 2))))
		if !n.kill(dead) {
			heal()
			return nil, errNotPromised
		}
		return heal, nil
	}
}

// loseHost kills all processes of a node: nobody is left to clean up.
func loseHost(f *fleet) (func(), error) {
	n := f.victim()
	n.memory.Kill(lately) // what the stalled disk keeps from dying dies with the stall
	for _, who := range actors {
		n.killed[who] = time.Now()
	}
	return nothing, nil
}

// flip makes the other site the better one, by a reload of one daemon.
func flip(f *fleet) (func(), error) {
	f.revision++
	n := f.any()
	n.configure(map[string]int{"dc1": 1 + f.revision%3, "dc2": 1 + f.revision%2})
	if pid := n.pids()[guardProcess]; pid != 0 {
		syscall.Kill(pid, syscall.SIGHUP)
	}
	return nothing, nil
}

// behave gives a node's children manners for a while; what they have started then stays until they end.
func behave(manners string) func(*fleet) (func(), error) {
	return func(f *fleet) (func(), error) {
		n := f.victim()
		file := mannersFile(f.dir, manners, n.id)
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			return nil, err
		}
		return func() {
			if manners != daemonizes || !n.hides {
				os.Remove(file)
				n.asked = time.Now()
			}
		}, nil
	}
}
