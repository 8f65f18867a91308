package zkserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"
)

// Ensemble is a group of servers that form a quorum.
type Ensemble struct{ Servers []*Server }

// StartEnsemble starts n servers and waits until all of them serve clients. The caller must stop the ensemble.
func StartEnsemble(ctx context.Context, n int, opt Options) (*Ensemble, error) {
	ports, err := FreePorts(2 * n)
	if err != nil {
		return nil, err
	}
	e := &Ensemble{}
	g, gctx := errgroup.WithContext(ctx)
	for i := range n {
		peers, err := peerConfig(opt, i, ports)
		var s *Server
		if err == nil {
			s, err = newServer(opt, peers)
		}
		if err == nil {
			e.Servers = append(e.Servers, s)
			err = os.WriteFile(filepath.Join(s.dir, "data", "myid"), fmt.Appendf(nil, "%d", i+1), 0o600)
		}
		if err != nil {
			return nil, errors.Join(err, g.Wait(), e.Stop())
		}
		g.Go(func() error { return s.Restart(gctx) })
	}
	if err := g.Wait(); err != nil {
		return nil, errors.Join(err, e.Stop())
	}
	return e, nil
}

// peerConfig returns the configuration lines with the addresses of all servers, for the server self.
func peerConfig(opt Options, self int, ports []int) (string, error) {
	var peers strings.Builder
	for i := 0; i < len(ports); i += 2 {
		quorum, election := ports[i], ports[i+1]
		if opt.PeerPort != nil && i/2 != self {
			var errs [2]error
			quorum, errs[0] = opt.PeerPort(self, i/2, quorum)
			election, errs[1] = opt.PeerPort(self, i/2, election)
			if err := errors.Join(errs[:]...); err != nil {
				return "", err
			}
		}
		fmt.Fprintf(&peers, "server.%d=127.0.0.1:%d:%d\n", i/2+1, quorum, election)
	}
	return peers.String(), nil
}

// Addrs returns the client addresses of all servers.
func (e *Ensemble) Addrs() []string {
	var addrs []string
	for _, s := range e.Servers {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// Leader returns the server that leads the quorum.
func (e *Ensemble) Leader(ctx context.Context) (*Server, error) {
	for _, s := range e.Servers {
		if answer, err := s.FourLetterWord(ctx, "srvr"); err == nil && strings.Contains(answer, "Mode: leader") {
			return s, nil
		}
	}
	return nil, errors.New("no ZooKeeper server leads the quorum")
}

// Stop stops all servers.
func (e *Ensemble) Stop() error {
	var errs []error
	for _, s := range e.Servers {
		errs = append(errs, s.Stop())
	}
	return errors.Join(errs...)
}
