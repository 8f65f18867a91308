package faults

import (
	"context"
	"strings"
	"time"

	"zkelectd/internal/test/zkserver"
)

// minSessionTimeout is the shortest session timeout that the servers grant; the nodes compute their leases from it.
const minSessionTimeout = 2 * time.Second

// serverFaults affect the servers.
var serverFaults = []fault{
	{"rolling restart of the servers", restartServers},
	{"kill -9 of the ensemble's leader", killLeader},
	{"loss of quorum", loseQuorum},
	{"a server stopped", pauseServer},
	{"servers grant shorter sessions", shortenSessions},
	{"servers come back empty", wipeServers},
}

// shortenSessions restarts one server or all with a lower limit for session timeouts, and later with the old one.
func shortenSessions(f *fleet) (func(), error) {
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
	return heal, limit(minSessionTimeout)
}

// wipeServers kills all servers and starts them again without their data. It does not do so with a single server: ZooKeeper could
// then lose writes that only this server and one other have stored, without any client noticing.
func wipeServers(f *fleet) (func(), error) {
	// The campaign's own session is lost as well, but would notice it only after its long timeout.
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
	return f.startServers, nil
}

// restartServers restarts the servers, one after the other.
func restartServers(f *fleet) (func(), error) {
	for _, s := range f.ensemble.Servers {
		if err := f.restart(s); err != nil {
			return nil, err
		}
	}
	return noHeal, nil
}

// restart restarts a server and waits until it serves requests, but not for long, as other faults may prevent that.
func (f *fleet) restart(s *zkserver.Server) error {
	s.Kill()
	if err := s.EnsureStarted(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), 4*time.Second)
	defer cancel()
	f.waitServing(ctx, s)
	return nil
}

// waitServing waits until a server serves requests, or ctx is done.
func (f *fleet) waitServing(ctx context.Context, s *zkserver.Server) {
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
		return noHeal, nil // there is none at the moment
	}
	s.Kill()
	return f.startServers, nil
}

func loseQuorum(f *fleet) (func(), error) {
	first := f.rng.IntN(3)
	for i := range 2 {
		f.ensemble.Servers[(first+i)%3].Kill()
	}
	return f.startServers, nil
}

// startServers starts the servers that do not run.
func (f *fleet) startServers() {
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
