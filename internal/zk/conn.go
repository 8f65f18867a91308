package zk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/cluster"
)

// Get implements [cluster.Reader].
func (s *Session) Get(ctx context.Context, path string, watched bool) ([]byte, cluster.Stat, error) {
	return s.own.Get(ctx, path, watched)
}

// Children implements [cluster.Reader].
func (s *Session) Children(ctx context.Context, path string, watched bool) ([]string, cluster.Stat, error) {
	return s.own.Children(ctx, path, watched)
}

// Do implements [cluster.Writer].
func (s *Session) Do(ctx context.Context, ops ...cluster.Op) ([]cluster.Result, error) {
	return s.own.Do(ctx, ops...)
}

// Get implements [cluster.Reader].
func (g *Group) Get(ctx context.Context, path string, watched bool) ([]byte, cluster.Stat, error) {
	return read(ctx, g, watch{path, false}, watched, func(arm bool) ([]byte, *zk.Stat, error) {
		if !arm {
			return g.zk.Get(path)
		}
		// getData sets no watch on a znode that does not exist; exists does. What was deleted is probably still gone:
		// then it takes one round trip only, which a candidate waits for.
		if !g.takeDeleted(path) {
			data, stat, _, err := g.zk.GetW(path)
			if !errors.Is(err, zk.ErrNoNode) {
				return data, stat, err
			}
		}
		exists, _, _, err := g.zk.ExistsW(path)
		if err != nil || !exists {
			if err == nil {
				err = zk.ErrNoNode
			}
			return nil, nil, err
		}
		// It was created in between, and the watch is set.
		return g.zk.Get(path)
	})
}

// Children implements [cluster.Reader].
func (g *Group) Children(ctx context.Context, path string, watched bool) ([]string, cluster.Stat, error) {
	return read(ctx, g, watch{path, true}, watched, func(arm bool) ([]string, *zk.Stat, error) {
		if !arm {
			return g.zk.Children(path)
		}
		names, stat, _, err := g.zk.ChildrenW(path)
		return names, stat, err
	})
}

// read reads a znode by f, which also sets the watch if it is to be armed.
func read[T any](ctx context.Context, g *Group, w watch, watched bool, f func(arm bool) (T, *zk.Stat, error)) (T,
	cluster.Stat, error) {
	type reply struct {
		value T
		stat  *zk.Stat
	}
	var arm *armedWatch
	if watched {
		arm = g.arm(w)
	}
	key := "get " + w.path
	if w.children {
		key = "list " + w.path
	}
	r, err := await(ctx, request{group: g, key: key}, func() (reply, error) {
		value, stat, err := f(arm != nil)
		return reply{value, stat}, err
	})
	if arm != nil {
		g.noteRead(w, arm, statOf(r.stat), err)
	}
	return r.value, statOf(r.stat), g.explainDenied(err)
}

// maxTxBytes limits the size of a transaction: a server closes the connection on a packet that exceeds jute.maxbuffer
// (1 MiB by default).
const maxTxBytes = 1000 << 10

// Do implements [cluster.Writer].
func (g *Group) Do(ctx context.Context, ops ...cluster.Op) ([]cluster.Result, error) {
	type reply struct {
		parts []zk.MultiResponse
		err   error
	}
	s := g.Session
	if err := s.Err(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w (%w)", cluster.ErrNotSent, err)
	}
	if !s.Connected() {
		return nil, cluster.ErrNotSent
	}
	if err := checkSize(ops); err != nil {
		return nil, err
	}
	reqs := make([]any, len(ops))
	for i, op := range ops {
		if op.Kind == cluster.OpCreate {
			if err := s.checkCreate(op.Path); err != nil {
				return nil, &cluster.TxError{Index: i, Op: op, Err: err}
			}
		}
		reqs[i] = s.zkRequest(op)
	}
	r, err := await(ctx, request{group: g, key: keyOf(ctx, ops), write: true}, func() (reply, error) {
		parts, err := s.zk.Multi(reqs...)
		if errors.Is(err, zk.ErrConnectionClosed) {
			return reply{}, err
		}
		return reply{parts, err}, nil
	})
	var out []cluster.Result
	if err == nil {
		out, err = parseResults(ops, r.parts, r.err)
	}
	if errors.Is(err, cluster.ErrUnknown) {
		g.swapUnsettled(true)
	}
	if refused, ok := errors.AsType[*cluster.TxError](err); ok && errors.Is(err, cluster.ErrNoAuth) {
		refused.Err = s.explainDenied(fmt.Errorf("%w%s", refused.Err, parentACLAdvice(refused.Op)))
	}
	return out, err
}

// keyOf returns what a transaction does. It is empty for those that the leases depend on: they are small by
// construction, and always sent.
func keyOf(ctx context.Context, ops []cluster.Op) string {
	if PriorityOf(ctx) >= PriorityUrgent {
		return ""
	}
	words := make([]string, len(ops))
	for i, op := range ops {
		words[i] = op.Kind.String() + " " + op.Path
	}
	return strings.Join(words, ", ")
}

// checkSize returns an error for a transaction that servers would refuse by closing the connection.
func checkSize(ops []cluster.Op) error {
	size := 0
	for i, op := range ops {
		if size += len(op.Path) + len(op.Data); size > maxTxBytes {
			return &cluster.TxError{Index: i, Op: op, Err: fmt.Errorf("%w: a transaction of more than %d bytes",
				cluster.ErrInvalid, maxTxBytes)}
		}
	}
	return nil
}

func (s *Session) zkRequest(op cluster.Op) any {
	switch op.Kind {
	case cluster.OpCheck:
		return &zk.CheckVersionRequest{Path: op.Path, Version: op.Version}
	case cluster.OpCreate:
		var flags int32
		if op.Ephemeral {
			flags |= zk.FlagEphemeral
		}
		if op.Sequential {
			flags |= zk.FlagSequence
		}
		return &zk.CreateRequest{Path: op.Path, Data: op.Data, Acl: s.createACL(op.Path), Flags: flags}
	case cluster.OpSet:
		return &zk.SetDataRequest{Path: op.Path, Data: op.Data, Version: op.Version}
	default:
		return &zk.DeleteRequest{Path: op.Path, Version: op.Version}
	}
}

// parentACLAdvice completes the text of ErrNoAuth for operations that the ACL of the parent governs. It is empty for
// others.
func parentACLAdvice(op cluster.Op) string {
	if op.Kind != cluster.OpCreate && op.Kind != cluster.OpDelete {
		return ""
	}
	return ", that of its parent " + op.Path[:max(1, strings.LastIndexByte(op.Path, '/'))]
}

// codeNames are what the codes mean that go-zookeeper has no name for.
var codeNames = map[int32]string{
	-124: "the server demands SASL: set zookeeper.sasl, or zookeeper.auth.file if it enforces the scheme digest",
	-119: "the server is read-only, because it has no quorum",
	-125: "a quota is used up: 'listquota' of zkCli.sh shows those of the znodes above it, 'setquota' raises them",
	-127: "the server has too much to do, and has dropped the request",
}

// refusedWith returns the error for a code that a server has answered.
func refusedWith(code int32) error { return &refusedError{code} }

// refusedError is the error for a request that a server has refused.
type refusedError struct{ code int32 }

func (e *refusedError) Error() string {
	if name := codeNames[e.code]; name != "" {
		return fmt.Sprintf("%s (code %d)", name, e.code)
	}
	return fmt.Sprintf("refused with code %d", e.code)
}

// Unwrap returns the error of package cluster for the code; nil if there is none.
func (e *refusedError) Unwrap() error { return wireErrors[e.code] }

// nameCode replaces the error of go-zookeeper for a code that it has no name for.
func nameCode(err error) error {
	var code int32
	if n, _ := fmt.Sscanf(err.Error(), "unknown error: %d", &code); n == 1 {
		return refusedWith(code)
	}
	return err
}

// notTriedText is the library's error text for operations after the one that failed.
const notTriedText = "unknown error: -2"

// parseResults returns the results of a transaction, or a *[cluster.TxError] for the operation that failed. The server
// answers the others with errors too, which are meaningless.
func parseResults(ops []cluster.Op, parts []zk.MultiResponse, err error) ([]cluster.Result, error) {
	for i, part := range parts {
		if part.Error == nil || part.Error.Error() == notTriedText || i >= len(ops) {
			continue
		}
		known := translateError(part.Error)
		if errors.Is(known, cluster.ErrUnknown) {
			known = nameCode(part.Error) // a code without a name, such as that of a quota, is a refusal too
		}
		return nil, &cluster.TxError{Index: i, Op: ops[i], Err: known}
	}
	if err != nil {
		return nil, translateError(err)
	}
	if len(parts) != len(ops) {
		return nil, fmt.Errorf("%w: %d results for %d operations", cluster.ErrUnknown, len(parts), len(ops))
	}
	out := make([]cluster.Result, len(ops))
	for i, part := range parts {
		if part.Error != nil {
			return nil, translateError(part.Error)
		}
		out[i].Path = part.String
		if part.Stat != nil {
			out[i].Version = part.Stat.Version
		}
	}
	return out, nil
}

// translateError translates the library's errors into those of package cluster: refused, not sent, or unknown. Errors
// that are not definitely one of the first two are unknown: to take one for a refusal would be to assume that nothing
// was applied.
func translateError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zk.ErrNoNode):
		return cluster.ErrNoNode
	case errors.Is(err, zk.ErrNodeExists):
		return cluster.ErrNodeExists
	case errors.Is(err, zk.ErrBadVersion):
		return cluster.ErrBadVersion
	case errors.Is(err, zk.ErrNotEmpty):
		return cluster.ErrNotEmpty
	case errors.Is(err, zk.ErrNoChildrenForEphemerals):
		return cluster.ErrEphemeralLeaf
	case errors.Is(err, zk.ErrNoAuth), errors.Is(err, zk.ErrAuthFailed):
		return cluster.ErrNoAuth
	case errors.Is(err, zk.ErrInvalidACL):
		return fmt.Errorf("%w (an ACL for users that the server does not know: for SASL it needs authProvider.1, see "+
			"docs/security.md)",
			cluster.ErrInvalid)
	case errors.Is(err, zk.ErrBadArguments), errors.Is(err, zk.ErrInvalidPath), errors.Is(err, zk.ErrInvalidFlags):
		return cluster.ErrInvalid
	case errors.Is(err, zk.ErrSessionExpired):
		return cluster.ErrSessionEnded
	case errors.Is(err, zk.ErrNoServer), errors.Is(err, zk.ErrSessionMoved):
		return cluster.ErrNotSent
	case errors.Is(err, zk.ErrConnectionClosed), errors.Is(err, zk.ErrClosing):
		return cluster.ErrUnknown
	}
	return fmt.Errorf("%w (%w)", cluster.ErrUnknown, nameCode(err))
}

func statOf(st *zk.Stat) cluster.Stat {
	if st == nil {
		return cluster.Stat{}
	}
	return cluster.Stat{
		Version: st.Version, ChildVersion: st.Cversion, Owner: st.EphemeralOwner, Created: st.Czxid, Modified: st.Mzxid,
		Time: time.UnixMilli(st.Mtime),
	}
}
