package store

import (
	"context"
	"errors"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store/storetest"
)

// hookedReader calls before each read.
type hookedReader struct {
	cluster.Reader
	before func(path string)
}

func (r *hookedReader) Get(ctx context.Context, path string, watch bool) ([]byte, cluster.Stat, error) {
	r.before(path)
	return r.Reader.Get(ctx, path, watch)
}

// A current counts only if the session that the fence names owns it, in one moment.
func TestReadAllTellsAForeignCurrent(t *testing.T) {
	server := storetest.NewServer()
	conn, other := server.Connect(), server.Connect()
	p := cluster.Paths{Root: "/g"}
	if err := EnsureTree(t.Context(), conn, p); err != nil {
		t.Fatal(err)
	}
	do := func(c cluster.ReadWriter, ops ...cluster.Op) {
		t.Helper()
		if _, err := c.Do(t.Context(), ops...); err != nil {
			t.Fatal(err)
		}
	}
	acquire := func(session int64, version int32) []cluster.Op {
		fence := cluster.Fence{Term: int64(version) + 2, State: cluster.FenceReady, Session: session}
		current := cluster.Current{Term: fence.Term, State: cluster.CurrentReady}
		return []cluster.Op{
			{Kind: cluster.OpSet, Path: p.Leader(), Version: version, Data: cluster.Encode(&fence)},
			{Kind: cluster.OpCreate, Path: p.Current(), Data: cluster.Encode(&current), Ephemeral: true},
		}
	}
	do(conn, acquire(conn.SessionID(), 0)...)
	read := func(before func(path string)) cluster.Snapshot {
		t.Helper()
		s, err := ReadAll(t.Context(), &hookedReader{server.Connect(), before}, p, false)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	nothing := func(string) {}
	if s := read(nothing); !s.Current.Readable() {
		t.Errorf("the holder's: %v", s.Current.Err)
	}
	remove := cluster.Op{Kind: cluster.OpDelete, Path: p.Current()}
	done := false
	s := read(func(path string) { // between the reads of the fence and of current
		if path == p.Current() && !done {
			done = true
			do(conn, remove)
			do(other, acquire(other.SessionID(), 1)...)
		}
	})
	if !s.Current.Readable() || s.Current.Record.Term != 3 || s.Fence.Record.Term != 3 {
		t.Errorf("after another ACQUIRE meanwhile: %+v, %+v", s.Fence.Record, s.Current)
	}
	do(other, remove)
	copied := cluster.Current{Term: 3, State: cluster.CurrentReady}
	for _, op := range []cluster.Op{
		{Kind: cluster.OpCreate, Path: p.Current(), Data: cluster.Encode(&copied)}, {Kind: cluster.OpCreate, Path: p.Current()},
		{Kind: cluster.OpCreate, Path: p.Current(), Data: cluster.Encode(&copied), Ephemeral: true},
	} {
		do(conn, op)
		if s := read(nothing); !errors.Is(s.Current.Err, cluster.ErrForeignCurrent) || s.Current.Readable() || s.Ready() {
			t.Errorf("%+v: %v", op, s.Current.Err)
		}
		do(conn, remove)
	}
}
