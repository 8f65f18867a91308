package faults

import (
	"errors"
	"os"
	"slices"
	"time"
)

// fault is a kind of fault. inject starts it and returns a function that ends it. It does nothing and returns errNotPromised if
// docs/safety.md promises nothing for this combination of faults.
type fault struct {
	name   string
	inject func(f *fleet) (heal func(), err error)
}

// allFaults are the faults for a fleet with any number of groups.
var allFaults = slices.Concat(processFaults, stopFaults, machineFaults, networkFaults, serverFaults, znodeFaults, requests)

var errNotPromised = errors.New("docs/safety.md promises nothing for this combination of faults")

func noHeal() {}

// wait waits for a duration, or until the test ends.
func (f *fleet) wait(d time.Duration) {
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-over.C:
	case <-f.t.Context().Done():
	}
}

// processFaults affect the processes of a node, mostly of the leader.
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
	{"loss of a site", loseSite},
	{"SIGSTOP of the daemon", stop(daemonProcess)},
	{"SIGSTOP of the guard", stop(guardProcess)},
	{"SIGSTOP of the keeper", stop(keeperProcess)},
	{"SIGSTOP of the child", stop(childProcess)},
	{"SIGSTOP of the guard, kill -9 of the daemon", stopAndKill(guardProcess, daemonProcess)},
	{"SIGSTOP of the daemon, kill -9 of the guard", stopAndKill(daemonProcess, guardProcess)},
	{"policy changed", changePolicy},
	{"child ignores TERM", setBehavior(ignoreTerm)},
	{"child daemonizes with a bare environment", setBehavior(daemonizes)},
	{"child forks every millisecond", setBehavior(forks)},
}

func kill(who ...string) func(*fleet) (func(), error) {
	return func(f *fleet) (func(), error) {
		if !f.victim().kill(who...) {
			return nil, errNotPromised
		}
		return noHeal, nil
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

// stopAndKill stops one process, and kills another one up to a lease later.
func stopAndKill(still, dead string) func(*fleet) (func(), error) {
	return func(f *fleet) (func(), error) {
		n := f.victim()
		if !n.isPromised([]string{dead}, []string{still}) {
			return nil, errNotPromised
		}
		heal := n.stop(still)
		if heal == nil {
			return nil, errNotPromised
		}
		f.wait(time.Duration(f.rng.Int64N(int64(sessionTimeout / 2))))
		if !n.kill(dead) {
			heal()
			return nil, errNotPromised
		}
		return heal, nil
	}
}

// loseHost kills all processes of a node, so that none can clean up.
func loseHost(f *fleet) (func(), error) {
	f.victim().lose()()
	return noHeal, nil
}

// loseSite kills all processes of all nodes of a site.
func loseSite(f *fleet) (func(), error) {
	for _, n := range f.siteOf(f.victim()) {
		n.lose()()
	}
	return noHeal, nil
}

// siteOf returns the nodes of a node's site.
func (f *fleet) siteOf(n *node) []*node {
	return slices.DeleteFunc(slices.Clone(f.nodes), func(o *node) bool { return o.site != n.site })
}

// setBehavior sets a behavior of a group's children on a node for a while. Processes that they have started remain until the child
// ends.
func setBehavior(behavior string) func(*fleet) (func(), error) {
	return func(f *fleet) (func(), error) {
		g := f.anyGroup()
		n := g.victim()
		file := behaviorFile(g.file(""), behavior, n.id)
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			return nil, err
		}
		return func() {
			if behavior != daemonizes || !n.hidesChildren {
				os.Remove(file)
				n.behaviorChanged = time.Now()
			}
		}, nil
	}
}
