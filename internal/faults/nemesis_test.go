package faults

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"zkelectd/internal/link"
	"zkelectd/internal/zkserver"
)

// fault is one kind of trouble. inject begins it and returns what ends it, nil if it is over at once.
type fault struct {
	name   string
	inject func(f *fleet) (heal func(), err error)
}

var kinds = append([]fault{
	{"kill -9 of the daemon", kill(func(p pids) []int { return []int{p.daemon} })},
	{"kill -9 of the guard", kill(func(p pids) []int { return []int{p.guard} })},
	{"kill -9 of the child", kill(func(p pids) []int { return []int{p.child} })},
	{"kill -9 of all three", killAll},
	{"SIGSTOP of the daemon", stop(func(p pids) int { return p.daemon })},
	{"SIGSTOP of the guard", stop(func(p pids) int { return p.guard })},
	{"SIGSTOP of the child", stop(func(p pids) int { return p.child })},
	{"daemon cut off from all servers", onLinks(true, link.Refuse)},
	{"daemon cut off from one server", onLinks(false, link.Refuse)},
	{"black hole between daemon and servers", onLinks(true, link.BlackHole)},
	{"half-open connections", onLinks(true, link.HalfOpen)},
	{"slow connections", onLinks(true, link.Slow)},
	{"connections reset", reset},
	{"one server parted from the others", part},
	{"rolling restart of the servers", roll},
	{"kill -9 of the ensemble's leader", killLeader},
	{"loss of quorum", loseQuorum},
	{"a server stands still", pauseServer},
	{"policy changed", flip},
	{"child ignores TERM", ignore},
}, orders...)

func nothing() {}

func kill(which func(pids) []int) func(*fleet) (func(), error) {
	return func(f *fleet) (func(), error) {
		for _, pid := range which(f.victim().pids()) {
			if pid != 0 {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		return nothing, nil
	}
}

// killAll is the loss of a host: nobody is left to clean up.
func killAll(f *fleet) (func(), error) {
	p := f.victim().pids()
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		for _, pid := range []int{p.guard, p.daemon, p.child} {
			if pid != 0 {
				syscall.Kill(pid, sig)
			}
		}
	}
	return nothing, nil
}

func stop(which func(pids) int) func(*fleet) (func(), error) {
	return func(f *fleet) (func(), error) {
		n := f.victim()
		p := n.pids()
		pid := which(p)
		if pid == 0 || stopped(p.guard) || stopped(p.daemon) {
			return nothing, nil // guard and daemon both standing still is a host that does, which nothing within survives
		}
		syscall.Kill(pid, syscall.SIGSTOP)
		return func() { syscall.Kill(pid, syscall.SIGCONT) }, nil
	}
}

func stopped(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && slices.Contains([]string{"T", "t"}, state(string(data)))
}

func state(stat string) string {
	for i := len(stat) - 1; i >= 0; i-- {
		if stat[i] == ')' && i+2 < len(stat) {
			return stat[i+2 : i+3]
		}
	}
	return ""
}

func onLinks(all bool, m link.Mode) func(*fleet) (func(), error) {
	return func(f *fleet) (func(), error) {
		links := f.victim().links
		if !all {
			i := f.rng.IntN(len(links))
			links = links[i : i+1]
		}
		for _, l := range links {
			l.Delay(time.Duration(5+f.rng.IntN(195)) * time.Millisecond)
			l.Set(m)
		}
		return func() {
			for _, l := range links {
				l.Set(link.Pass)
				if m != link.Slow {
					l.Reset(false) // what was swallowed is missing from the stream
				}
			}
		}, nil
	}
}

func reset(f *fleet) (func(), error) {
	for _, l := range f.victim().links {
		l.Reset(true)
	}
	return nothing, nil
}

// part cuts one server off from the other two; its clients stay connected to it.
func part(f *fleet) (func(), error) {
	alone := f.rng.IntN(3)
	var links []*link.Link
	for pair, between := range f.between {
		if pair[0] == alone || pair[1] == alone {
			links = append(links, between...)
		}
	}
	for _, l := range links {
		l.Set(link.BlackHole)
	}
	return func() {
		for _, l := range links {
			l.Set(link.Pass)
			l.Reset(false)
		}
	}, nil
}

// roll restarts the servers, each once the one before serves again: or after a while, as other faults may keep it from that.
func roll(f *fleet) (func(), error) {
	for _, s := range f.ensemble.Servers {
		s.Kill()
		if err := s.Revive(); err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(f.t.Context(), 4*time.Second)
		f.serves(ctx, s)
		cancel()
	}
	return nothing, nil
}

// serves waits until a server does, or ctx is over.
func (f *fleet) serves(ctx context.Context, s *zkserver.Server) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if answer, err := s.Ask(ctx, "srvr"); err == nil && strings.Contains(answer, "Mode:") {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func killLeader(f *fleet) (func(), error) {
	s, err := f.ensemble.Leader(f.t.Context())
	if err != nil {
		return nothing, nil // there is none at the moment
	}
	s.Kill()
	return func() { f.revive() }, nil
}

func loseQuorum(f *fleet) (func(), error) {
	first := f.rng.IntN(3)
	for i := range 2 {
		f.ensemble.Servers[(first+i)%3].Kill()
	}
	return func() { f.revive() }, nil
}

// revive starts the servers that are dead.
func (f *fleet) revive() {
	var errs []error
	for _, s := range f.ensemble.Servers {
		errs = append(errs, s.Revive())
	}
	for _, err := range errs {
		if err != nil {
			f.t.Error(err)
		}
	}
}

func pauseServer(f *fleet) (func(), error) {
	s := f.ensemble.Servers[f.rng.IntN(3)]
	s.Pause()
	return s.Resume, nil
}

// flip makes the other site the better one, by a reload of one daemon.
func flip(f *fleet) (func(), error) {
	f.revision++
	n := f.any()
	n.configure(map[string]int{"dc1": 1 + f.revision%3, "dc2": 1 + f.revision%2})
	if pid := n.pids().guard; pid != 0 {
		syscall.Kill(pid, syscall.SIGHUP)
	}
	return nothing, nil
}

func ignore(f *fleet) (func(), error) {
	file := f.file("ignore-" + f.victim().id)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return nil, err
	}
	return func() { os.Remove(file) }, nil
}
