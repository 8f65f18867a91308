package faults

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// stopFaults stop daemons as a service manager does, which starts them again. Leaders announce that and are replaced, while the others,
// among them the elector, may be about to end as well.
var stopFaults = []fault{
	{"SIGTERM to several daemons", stopSeveral},
	{"rolling restart of the daemons", restartDaemons},
	{"second start", startAgain()},
	{"second start, kill -9 of guard and daemon", startAgain(guardProcess, daemonProcess)},
}

// startAgain starts a node's zkelectd a second time, as by hand, kills some of the first one's processes, and later
// ends the second one.
func startAgain(who ...string) func(*fleet) (func(), error) {
	return func(f *fleet) (func(), error) {
		n := f.victim()
		first := n.pids()[guardProcess]
		if len(who) > 0 && !n.isPromised(who, nil) {
			return nil, errNotPromised
		}
		path := n.f.file(n.id + ".second")
		log, err := os.Create(path)
		if err != nil {
			return nil, err
		}
		defer log.Close()
		second := n.command(log)
		if err := second.Start(); err != nil {
			return nil, err
		}
		n.wg.Go(func() { // ends with the second one, which shutDown kills
			second.Wait()
			text, err := os.ReadFile(path)
			if ran := strings.Contains(string(text), "containment chosen"); err != nil || ran && len(first) > 0 && slices.Equal(first, n.pids()[guardProcess]) {
				f.t.Errorf("%s was started a second time while it ran: %v, %s", n.id, err, text)
			}
		})
		n.kill(who...)
		return func() { signal(syscall.SIGINT, second.Process.Pid) }, nil
	}
}

// stopSeveral sends SIGTERM to two daemons or more within a short time, and to some of them twice: the second one ends the work without
// grace.
func stopSeveral(f *fleet) (func(), error) {
	nodes := f.rng.Perm(len(f.nodes))
	most := []time.Duration{time.Millisecond, 50 * time.Millisecond, 500 * time.Millisecond}[f.rng.IntN(3)] // from one to the next
	for _, i := range nodes[:2+f.rng.IntN(len(nodes)-1)] {
		signal(syscall.SIGTERM, f.nodes[i].pids()[guardProcess]...)
		f.wait(time.Duration(f.rng.Int64N(int64(most))))
		if f.rng.IntN(4) == 0 {
			signal(syscall.SIGTERM, f.nodes[i].pids()[guardProcess]...)
		}
	}
	return noHeal, nil
}

// restartTimeout is how long a rolling restart waits for one node, which other faults may delay.
const restartTimeout = 2 * sessionTimeout

// restartDaemons restarts all daemons, one after the other. Half of the time the next one follows as soon as one has been started.
func restartDaemons(f *fleet) (func(), error) {
	for _, i := range f.rng.Perm(len(f.nodes)) {
		n := f.nodes[i]
		before := n.pids()[guardProcess]
		signal(syscall.SIGTERM, before...)
		for limit := time.Now().Add(restartTimeout); time.Now().Before(limit) && f.t.Context().Err() == nil; f.wait(10 * time.Millisecond) {
			if now := n.pids()[guardProcess]; len(now) > 0 && (len(before) == 0 || now[0] != before[0]) {
				break
			}
		}
		if f.rng.IntN(2) == 0 {
			f.wait(time.Duration(f.rng.Int64N(int64(time.Second))))
		}
	}
	return noHeal, nil
}
