package zkstore

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/cluster"
)

// Taking an error for a refusal is believing that nothing was applied: what is not known must be unknown.
func TestOutcomes(t *testing.T) {
	for _, err := range []error{
		zk.ErrConnectionClosed, zk.ErrClosing, &net.OpError{Op: "write", Err: io.ErrClosedPipe}, io.EOF, io.ErrUnexpectedEOF,
		net.ErrClosed, os.ErrDeadlineExceeded, errors.New("tls: protocol is shutdown"), zk.ErrShortBuffer, zk.ErrAPIError,
	} {
		if got := outcome(err); !errors.Is(got, cluster.ErrUnknown) {
			t.Errorf("%v: %v", err, got)
		}
	}
	for err, want := range map[error]error{
		zk.ErrNoServer: cluster.ErrNotSent, zk.ErrSessionMoved: cluster.ErrNotSent, zk.ErrSessionExpired: cluster.ErrSessionEnded,
		zk.ErrNoNode: cluster.ErrNoNode, zk.ErrNodeExists: cluster.ErrNodeExists, zk.ErrBadVersion: cluster.ErrBadVersion,
		zk.ErrNotEmpty: cluster.ErrNotEmpty, zk.ErrNoAuth: cluster.ErrNoAuth, zk.ErrInvalidACL: cluster.ErrInvalid,
	} {
		if got := outcome(err); !errors.Is(got, want) || errors.Is(got, cluster.ErrUnknown) {
			t.Errorf("%v: %v", err, got)
		}
	}
}

func TestRefusedOperationIsFoundAmongTheUntried(t *testing.T) {
	ops := []cluster.Op{{Path: "/a"}, {Path: "/b"}, {Path: "/c"}}
	untried, quota := errors.New(notTried), errors.New("unknown error: -125")
	for name, c := range map[string]struct {
		errs  [3]error
		index int
	}{
		"the first":             {[3]error{zk.ErrBadVersion, untried, untried}, 0},
		"the last":              {[3]error{nil, nil, zk.ErrNodeExists}, 2},
		"untried before":        {[3]error{untried, zk.ErrNoNode, untried}, 1},
		"a code without a name": {[3]error{nil, quota, untried}, 1},
	} {
		parts := make([]zk.MultiResponse, 3)
		for i, err := range c.errs {
			parts[i].Error = err
		}
		_, err := results(ops, parts, zk.ErrAPIError)
		var refused *cluster.TxError
		if !errors.As(err, &refused) || refused.Index != c.index || errors.Is(err, cluster.ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTransactionTooBigIsRefusedBeforeItIsSent(t *testing.T) {
	s := open(t, Options{})
	p := root(t, s)
	big := cluster.Op{Kind: cluster.OpCreate, Path: p.Root + "/big", Data: make([]byte, maxTx)}
	if _, err := s.Do(t.Context(), big); !errors.Is(err, cluster.ErrInvalid) {
		t.Errorf("%v", err)
	}
	big.Data = big.Data[:maxTx-len(big.Path)]
	if _, err := s.Do(t.Context(), big); err != nil || s.Err() != nil {
		t.Errorf("the biggest that is let through: %v, session %v", err, s.Err())
	}
}

// A request for a long T must not make the handshake outlast the T that the server grants.
func TestPaceFollowsTheNegotiatedTimeout(t *testing.T) {
	s := open(t, Options{Timeout: time.Hour})
	if limit := s.handshakeLimit(); limit > s.Timeout()/3 {
		t.Errorf("handshake limit %s with a session timeout of %s", limit, s.Timeout())
	}
	clamped := &Session{opt: Options{Timeout: 12 * time.Second}, shake: handshake{timeout: 3 * time.Second}}
	if limit := clamped.handshakeLimit(); limit > time.Second {
		t.Errorf("handshake limit %s with a session timeout of 3 s", limit)
	}
	fresh := &Session{opt: Options{Timeout: time.Hour}}
	if limit := fresh.handshakeLimit(); limit > longestPace/3 {
		t.Errorf("first handshake limit %s", limit)
	}
}
