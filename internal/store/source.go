package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"zkelectd/internal/cluster"
)

// Source performs the reads of a [Collector].
type Source interface {
	// Read performs all reads, possibly concurrently, and stores a result or an error in each. If one of them fails
	// with an error other than [cluster.ErrNoNode] or [cluster.ErrNoAuth], it may cancel those that are not finished.
	Read(ctx context.Context, reads []*Read)
	// TakeHints returns the hints since the last call and clears them, as [cluster.Watcher] does.
	TakeHints() cluster.Hints
}

// Read is the read of one znode and its result.
type Read struct {
	Path  string
	List  bool // read the names of the children instead of the data
	Watch bool
	// Optional is set if the other reads go on when this one fails.
	Optional bool

	Data  []byte
	Names []string
	Stat  cluster.Stat
	Err   error
}

// answered reports whether the server has answered, if only that the znode does not exist or may not be read.
func (r *Read) answered() bool {
	return r.Err == nil || errors.Is(r.Err, cluster.ErrNoNode) || errors.Is(r.Err, cluster.ErrNoAuth)
}

// maxReads is the maximum number of concurrent reads.
const maxReads = 64

// sessionSource is a [Source] that reads concurrently in a session.
type sessionSource struct{ ReaderSession }

func (p sessionSource) Read(ctx context.Context, reads []*Read) { readAtOnce(ctx, p, reads) }

// readAtOnce performs reads concurrently, as [Source] says.
func readAtOnce(ctx context.Context, conn cluster.Reader, reads []*Read) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxReads)
	for _, r := range reads {
		g.Go(func() error {
			if r.List {
				r.Names, r.Stat, r.Err = conn.Children(ctx, r.Path, r.Watch)
			} else {
				r.Data, r.Stat, r.Err = conn.Get(ctx, r.Path, r.Watch)
			}
			if r.answered() || r.Optional {
				return nil
			}
			return r.Err // cancels the others
		})
	}
	_ = g.Wait() // each read has its own error
}

// decoder is [cluster.ReadStored] for a record, or what takes its place.
type decoder[T any] func(path string, data []byte, stat cluster.Stat, exists bool) cluster.Stored[T]

// readRecord reads a znode and decodes its record.
func readRecord[T any](
	ctx context.Context, conn cluster.Reader, path string, watch bool, decode decoder[T],
) (cluster.Stored[T], error) {
	data, stat, err := conn.Get(ctx, path, watch)
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		return cluster.Stored[T]{}, fmt.Errorf("cannot read znode %s: %w", path, err)
	}
	return decode(path, data, stat, err == nil), nil
}

// lastPart returns the name of a znode without its parent.
func lastPart(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
