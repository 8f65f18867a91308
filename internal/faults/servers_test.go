package faults

import (
	"context"
	"strings"
	"time"

	"zkelectd/internal/zkserver"
)

// shorter is the session timeout that the servers grant at least: what the nodes compute their lease from.
const shorter = 2 * time.Second

// serverFaults are what happens to the servers.
var serverFaults = []fault{
	{"rolling restart of the servers", roll},
	{"kill -9 of the ensemble's leader", killLeader},
	{"loss of quorum", loseQuorum},
	{"a server stands still", pauseServer},
	{"servers grant shorter sessions", shorten},
	{"servers come back empty", wipe},
}

// shorten restarts the servers, one or all, with a smaller limit for session timeouts; then with the old one.
func shorten(f *fleet) (func(), error) {
	servers := f.ensemble.Servers
	if f.rng.Float64() < 0.5 {
		i := f.rng.IntN(len(servers))
		servers = servers[i : i+1]
	}
	limit := func(most time.Duration) error {
		for _, s := range servers {
			if err := s.SetMaxSession(most); err != nil {
				return err
			}
			if err := f.restart(s); err != nil {
				return err
			}
		}
		return nil
	}
	heal := func() {
		if err := limit(2 * time.Minute); err != nil {
			f.t.Error(err)
		}
	}
	return heal, limit(shorter)
}

// wipe kills all servers, and starts them again without their data. That of one server alone is another matter: with it goes
// what only a quorum of that server and one other has, and ZooKeeper's word is broken unnoticed.
func wipe(f *fleet) (func(), error) {
	// The campaign's own session is lost as well, and would find out only after its long timeout.
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Second)
	defer cancel()
	f.session.Close(ctx)
	for _, s := range f.ensemble.Servers {
		s.Kill()
	}
	for _, s := range f.ensemble.Servers {
		if err := s.Wipe(); err != nil {
			return nil, err
		}
	}
	return f.revive, nil
}

// roll restarts the servers, one after the other.
func roll(f *fleet) (func(), error) {
	for _, s := range f.ensemble.Servers {
		if err := f.restart(s); err != nil {
			return nil, err
		}
	}
	return nothing, nil
}

// restart restarts a server, and waits until it serves: or for a while, as other faults may keep it from that.
func (f *fleet) restart(s *zkserver.Server) error {
	s.Kill()
	if err := s.EnsureStarted(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), 4*time.Second)
	defer cancel()
	f.serves(ctx, s)
	return nil
}

// serves waits until a server does, or ctx is over.
func (f *fleet) serves(ctx context.Context, s *zkserver.Server) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if answer, err := s.FourLetterWord(ctx, "srvr"); err == nil && strings.Contains(answer, "Mode:") {
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
	return f.revive, nil
}

func loseQuorum(f *fleet) (func(), error) {
	first := f.rng.IntN(3)
	for i := range 2 {
		f.ensemble.Servers[(first+i)%3].Kill()
	}
	return f.revive, nil
}

// revive starts the servers that are dead.
func (f *fleet) revive() {
	var errs []error
	for _, s := range f.ensemble.Servers {
		errs = append(errs, s.EnsureStarted())
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
