package zkstore

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
	type reply struct {
		data []byte
		stat *zk.Stat
	}
	w := watch{path, false}
	arm := watched && s.arm(w)
	r, err := await(ctx, s, func() (reply, error) {
		if !arm {
			data, stat, err := s.zk.Get(path)
			return reply{data, stat}, err
		}
		data, stat, _, err := s.zk.GetW(path)
		if !errors.Is(err, zk.ErrNoNode) {
			return reply{data, stat}, err
		}
		// getData sets no watch on what is not there; exists does.
		exists, _, _, err := s.zk.ExistsW(path)
		if err != nil || !exists {
			if err == nil {
				err = zk.ErrNoNode
			}
			return reply{}, err
		}
		// Created in between, and watched by now.
		data, stat, err = s.zk.Get(path)
		return reply{data, stat}, err
	})
	if err != nil && arm && !errors.Is(err, cluster.ErrNoNode) {
		s.disarm(w)
	}
	return r.data, statOf(r.stat), s.denied(err)
}

// Children implements [cluster.Reader].
func (s *Session) Children(ctx context.Context, path string, watched bool) ([]string, cluster.Stat, error) {
	type reply struct {
		names []string
		stat  *zk.Stat
	}
	w := watch{path, true}
	arm := watched && s.arm(w)
	r, err := await(ctx, s, func() (reply, error) {
		if !arm {
			names, stat, err := s.zk.Children(path)
			return reply{names, stat}, err
		}
		names, stat, _, err := s.zk.ChildrenW(path)
		return reply{names, stat}, err
	})
	if err != nil && arm {
		s.disarm(w)
	}
	return r.names, statOf(r.stat), s.denied(err)
}

// maxTx bounds a transaction: a server hangs up on a packet above jute.maxbuffer, by default 1 MiB, without a word.
const maxTx = 1000 << 10

// Do implements [cluster.Writer].
func (s *Session) Do(ctx context.Context, ops ...cluster.Op) ([]cluster.Result, error) {
	if err := s.Err(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w (%w)", cluster.ErrNotSent, err)
	}
	if !s.Connected() {
		return nil, cluster.ErrNotSent
	}
	size := 0
	for i, op := range ops {
		if size += len(op.Path) + len(op.Data); size > maxTx {
			return nil, &cluster.TxError{Index: i, Op: op, Err: fmt.Errorf("%w: more than %d bytes at once", cluster.ErrInvalid, maxTx)}
		}
	}
	reqs := make([]any, len(ops))
	for i, op := range ops {
		reqs[i] = s.request(op)
	}
	type reply struct {
		parts []zk.MultiResponse
		err   error
	}
	r, err := await(ctx, s, func() (reply, error) {
		parts, err := s.zk.Multi(reqs...)
		return reply{parts, err}, nil
	})
	if err != nil {
		if ctx.Err() != nil {
			// It may still be queued or under way, and take effect after whatever the caller does next.
			s.end(fmt.Errorf("a write got no reply in time (%w)", ctx.Err()))
			return nil, fmt.Errorf("%w (%w)", cluster.ErrUnknown, ctx.Err())
		}
		return nil, err
	}
	out, err := results(ops, r.parts, r.err)
	var refused *cluster.TxError
	if errors.As(err, &refused) && errors.Is(err, cluster.ErrNoAuth) {
		refused.Err = s.denied(fmt.Errorf("%w%s", refused.Err, governed(refused.Op)))
	}
	return out, err
}

func (s *Session) request(op cluster.Op) any {
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
		return &zk.CreateRequest{Path: op.Path, Data: op.Data, Acl: s.creates(), Flags: flags}
	case cluster.OpSet:
		return &zk.SetDataRequest{Path: op.Path, Data: op.Data, Version: op.Version}
	default:
		return &zk.DeleteRequest{Path: op.Path, Version: op.Version}
	}
}

// governed names the znode whose ACL decides, where that is not the one of the operation.
func governed(op cluster.Op) string {
	if op.Kind != cluster.OpCreate && op.Kind != cluster.OpDelete {
		return ""
	}
	return ", that of its parent " + op.Path[:max(1, strings.LastIndexByte(op.Path, '/'))]
}

// notTried is how the library shows the code that the server gives to operations after the one that failed.
const notTried = "unknown error: -2"

// results finds the operation that failed: the others are answered with errors too, which say nothing.
func results(ops []cluster.Op, parts []zk.MultiResponse, err error) ([]cluster.Result, error) {
	for i, part := range parts {
		if part.Error == nil || part.Error.Error() == notTried || i >= len(ops) {
			continue
		}
		known := outcome(part.Error)
		if errors.Is(known, cluster.ErrUnknown) {
			known = part.Error // a code without a name, such as a quota's: refused all the same
		}
		return nil, &cluster.TxError{Index: i, Op: ops[i], Err: known}
	}
	if err != nil {
		return nil, outcome(err)
	}
	if len(parts) != len(ops) {
		return nil, fmt.Errorf("%w: %d results for %d operations", cluster.ErrUnknown, len(parts), len(ops))
	}
	out := make([]cluster.Result, len(ops))
	for i, part := range parts {
		if part.Error != nil {
			return nil, outcome(part.Error)
		}
		out[i].Path = part.String
		if part.Stat != nil {
			out[i].Version = part.Stat.Version
		}
	}
	return out, nil
}

// outcome translates the library's errors: definite, not sent, or unknown. What is not known to be one of the first two
// is unknown: taking it for a refusal would be believing that nothing was applied.
func outcome(err error) error {
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
	case errors.Is(err, zk.ErrBadArguments), errors.Is(err, zk.ErrInvalidPath), errors.Is(err, zk.ErrInvalidACL),
		errors.Is(err, zk.ErrInvalidFlags):
		return cluster.ErrInvalid
	case errors.Is(err, zk.ErrSessionExpired):
		return cluster.ErrSessionEnded
	case errors.Is(err, zk.ErrNoServer), errors.Is(err, zk.ErrSessionMoved):
		return cluster.ErrNotSent
	case errors.Is(err, zk.ErrConnectionClosed), errors.Is(err, zk.ErrClosing):
		return cluster.ErrUnknown
	}
	return fmt.Errorf("%w (%w)", cluster.ErrUnknown, err)
}

// await runs a call of the library, which takes no context, under one. The call's goroutine ends with the session at
// the latest.
func await[T any](ctx context.Context, s *Session, call func() (T, error)) (T, error) {
	type reply struct {
		value T
		err   error
	}
	if err := s.Err(); err != nil {
		var zero T
		return zero, err
	}
	done := make(chan reply, 1)
	go func() {
		value, err := call()
		done <- reply{value, outcome(err)}
	}()
	var zero T
	var over error
	select {
	case r := <-done:
		if r.err != nil && s.Err() != nil {
			return zero, errors.Join(s.Err(), r.err)
		}
		return r.value, r.err
	case <-ctx.Done():
		over = ctx.Err()
	case <-s.done:
		over = s.Err()
	}
	select {
	case r := <-done:
		if r.err == nil { // the reply is there: what it says is better than giving up
			return r.value, nil
		}
	default:
	}
	return zero, over
}

// arm notes a watch before it is set, as it may fire before its setting has returned. False if it is armed already: the
// library would keep one channel more for each setting.
func (s *Session) arm(w watch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.armed[w] {
		return false
	}
	s.armed[w] = true
	return true
}

func (s *Session) disarm(w watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.armed, w)
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
