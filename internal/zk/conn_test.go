package zk

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/cluster"
)

// An error that is not definitely a refusal must be unknown: to treat it as a refusal is to assume that nothing was applied.
func TestTranslateError(t *testing.T) {
	for _, err := range []error{
		zk.ErrConnectionClosed, zk.ErrClosing, &net.OpError{Op: "write", Err: io.ErrClosedPipe}, io.EOF, io.ErrUnexpectedEOF,
		net.ErrClosed, os.ErrDeadlineExceeded, errors.New("tls: protocol is shutdown"), zk.ErrShortBuffer, zk.ErrAPIError,
	} {
		if got := translateError(err); !errors.Is(got, cluster.ErrUnknown) {
			t.Errorf("%v: %v", err, got)
		}
	}
	if translateError(nil) != nil {
		t.Error("nil became an error")
	}
	for err, want := range map[error]error{
		zk.ErrNoServer: cluster.ErrNotSent, zk.ErrSessionMoved: cluster.ErrNotSent, zk.ErrSessionExpired: cluster.ErrSessionEnded,
		zk.ErrNoNode: cluster.ErrNoNode, zk.ErrNodeExists: cluster.ErrNodeExists, zk.ErrBadVersion: cluster.ErrBadVersion,
		zk.ErrNotEmpty: cluster.ErrNotEmpty, zk.ErrNoChildrenForEphemerals: cluster.ErrEphemeralLeaf,
		zk.ErrNoAuth: cluster.ErrNoAuth, zk.ErrAuthFailed: cluster.ErrNoAuth, zk.ErrInvalidACL: cluster.ErrInvalid,
		zk.ErrBadArguments: cluster.ErrInvalid, zk.ErrInvalidPath: cluster.ErrInvalid, zk.ErrInvalidFlags: cluster.ErrInvalid,
	} {
		if got := translateError(err); !errors.Is(got, want) || errors.Is(got, cluster.ErrUnknown) {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// A reply that does not match the request leaves the outcome unknown. One that does has a result for each operation.
func TestParseResults(t *testing.T) {
	ops := []cluster.Op{{Path: "/a"}, {Path: "/b"}}
	parts := []zk.MultiResponse{{String: "/a_0000000001"}, {Stat: &zk.Stat{Version: 7}}}
	got, err := parseResults(ops, parts, nil)
	if want := []cluster.Result{{Path: "/a_0000000001"}, {Version: 7}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	untried := errors.New(notTriedText)
	for name, c := range map[string]struct {
		parts []zk.MultiResponse
		err   error
	}{
		"too few": {parts[:1], nil}, "too many": {append(slices.Clone(parts), zk.MultiResponse{}), nil}, "none": {nil, nil}, "no reply": {nil, zk.ErrConnectionClosed},
		"one more that failed": {append(slices.Clone(parts), zk.MultiResponse{Error: zk.ErrNoNode}), nil}, "only untried": {[]zk.MultiResponse{{Error: untried}, {Error: untried}}, nil},
	} {
		if got, err := parseResults(ops, c.parts, c.err); !errors.Is(err, cluster.ErrUnknown) || got != nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := parseResults(ops, nil, zk.ErrSessionExpired); !errors.Is(err, cluster.ErrSessionEnded) {
		t.Errorf("expired session: %v", err)
	}
	if _, err := parseResults(ops, nil, nil); err == nil {
		t.Error("no results at all")
	}
}

func TestParseResultsFindsTheFailedOperation(t *testing.T) {
	ops := []cluster.Op{{Path: "/a"}, {Path: "/b"}, {Path: "/c"}}
	untried, quota := errors.New(notTriedText), errors.New("unknown error: -125")
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
		_, err := parseResults(ops, parts, zk.ErrAPIError)
		var refused *cluster.TxError
		if !errors.As(err, &refused) || refused.Index != c.index || errors.Is(err, cluster.ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
		if name == "a code without a name" {
			contains(t, err, "a quota is used up", "listquota", "-125")
		}
	}
}

func TestTooLargeTransactionIsNotSent(t *testing.T) {
	s := open(t, Options{})
	p := root(t, s)
	big := cluster.Op{Kind: cluster.OpCreate, Path: p.Root + "/big", Data: make([]byte, maxTxBytes)}
	if _, err := s.Do(t.Context(), big); !errors.Is(err, cluster.ErrInvalid) {
		t.Errorf("%v", err)
	}
	big.Data = big.Data[:maxTxBytes-len(big.Path)]
	if _, err := s.Do(t.Context(), big); err != nil || s.Err() != nil {
		t.Errorf("the largest allowed transaction: %v, session %v", err, s.Err())
	}
}

// A request for a long T must not make the handshake outlast the T that the server grants.
func TestPaceFollowsTheNegotiatedTimeout(t *testing.T) {
	s := open(t, Options{Timeout: time.Hour})
	if limit := s.handshakeTimeout(); limit > s.Timeout()/3 {
		t.Errorf("handshake limit %s with a session timeout of %s", limit, s.Timeout())
	}
	clamped := &Session{opt: Options{Timeout: 12 * time.Second}, handshake: handshake{timeout: 3 * time.Second}}
	if limit := clamped.handshakeTimeout(); limit > time.Second {
		t.Errorf("handshake limit %s with a session timeout of 3 s", limit)
	}
	fresh := &Session{opt: Options{Timeout: time.Hour}}
	if limit := fresh.handshakeTimeout(); limit > maxPace/3 {
		t.Errorf("first handshake limit %s", limit)
	}
}

// A call that fails while the session ends returns both errors, regardless of their order.
func TestAwaitWhileTheSessionEnds(t *testing.T) {
	ended := fmt.Errorf("%w: expired", cluster.ErrSessionEnded)
	s := bareSession(t, io.Discard)
	_, err := await(t.Context(), request{group: s.own}, func() (int, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.err = ended // before Done is closed
		return 0, zk.ErrConnectionClosed
	})
	if !errors.Is(err, cluster.ErrSessionEnded) || !errors.Is(err, cluster.ErrUnknown) {
		t.Errorf("a failure at the end: %v", err)
	}
	if n, err := await(t.Context(), request{group: s.own}, func() (int, error) { return 7, nil }); n != 0 || !errors.Is(err, cluster.ErrSessionEnded) {
		t.Errorf("after the end: %d, %v", n, err)
	}
	s = bareSession(t, io.Discard)
	forever := make(chan struct{})
	defer close(forever)
	_, err = await(t.Context(), request{group: s.own}, func() (int, error) {
		s.end(ended)
		<-forever
		return 7, nil
	})
	if !errors.Is(err, cluster.ErrSessionEnded) {
		t.Errorf("no answer at the end: %v", err)
	}
}
