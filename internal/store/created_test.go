package store

import (
	"context"
	"errors"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store/storetest"
)

// behind is a server that lags behind: until a sync it answers from before.
type behind struct {
	cluster.ReadWriter
	before cluster.Reader // nil once the server has caught up
	err    error          // of each read
	failed error          // of the sync
}

func (b *behind) Get(ctx context.Context, znode string, watch bool) ([]byte, cluster.Stat, error) {
	if b.err != nil {
		return nil, cluster.Stat{}, b.err
	}
	if b.before != nil {
		return b.before.Get(ctx, znode, watch)
	}
	return b.ReadWriter.Get(ctx, znode, watch)
}

func (b *behind) Sync(context.Context) error {
	b.before = nil
	return b.failed
}

// A group does not exist only if a server that has caught up says so: nothing else proves it.
func TestAbsenceOfAGroup(t *testing.T) {
	t.Parallel()
	const root = "/zk/billing"
	p := cluster.Paths{Root: root}
	record := func(t *testing.T, c cluster.ReadWriter) { ensures(t, c, "/zk", "billing", root) }
	for name, c := range map[string]struct {
		prepare func(*testing.T, cluster.ReadWriter)
		change  func(*behind)
		want    bool
		err     error
	}{
		"nothing": {},
		"a znode of an administrator": {prepare: func(t *testing.T, c cluster.ReadWriter) {
			put(t, c, "/zk", "")
			put(t, c, root, "")
		}},
		"a record": {prepare: record, want: true},
		"a record that is not seen yet": {prepare: record, want: true, change: func(b *behind) {
			b.before = storetest.NewServer().Connect()
		}},
		"a damaged record": {prepare: func(t *testing.T, c cluster.ReadWriter) {
			put(t, c, "/zk", "")
			put(t, c, root, "hello")
		}, want: true},
		"a group without a record": {prepare: func(t *testing.T, c cluster.ReadWriter) {
			if err := Init(t.Context(), c, p, "the test"); err != nil {
				t.Fatal(err)
			}
		}, want: true},
		"not permitted": {change: func(b *behind) { b.err = cluster.ErrNoAuth }, want: true},
		"no answer":     {change: func(b *behind) { b.err = cluster.ErrUnknown }, err: cluster.ErrUnknown},
		"no sync":       {change: func(b *behind) { b.failed = cluster.ErrUnknown }, err: cluster.ErrUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			b := &behind{ReadWriter: storetest.NewServer().Connect()}
			if c.prepare != nil {
				c.prepare(t, b.ReadWriter)
			}
			if c.change != nil {
				c.change(b)
			}
			got, err := Created(t.Context(), b, root, cluster.KindSingle)
			if got != c.want || !errors.Is(err, c.err) {
				t.Errorf("got %t, %v, want %t, %v", got, err, c.want, c.err)
			}
		})
	}
}

// What a mistyped root was meant to be is a group beside it.
func TestSimilarRoot(t *testing.T) {
	t.Parallel()
	conn := storetest.NewServer().Connect()
	ensures(t, conn, "/zk", "billing", "/zk/billing")
	put(t, conn, "/zk/ingest", "")
	for root, want := range map[string]string{"/zk/biling": "/zk/billing", "/zk/ingst": "", "/zk/other": "", "/none/billing": "", "/zkk": ""} {
		if got := similarRoot(t.Context(), conn, root); got != want {
			t.Errorf("%s: %q, want %q", root, got, want)
		}
	}
}
