package zkstore

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"zkelectd/internal/cluster"
)

// Source answers the reads of a [Collector].
type Source interface {
	// Read answers all reads, which may be under way at the same time. When one of them fails otherwise than by
	// [cluster.ErrNoNode] or [cluster.ErrNoAuth], it may give up those that have no answer yet: each read has one, or an Err.
	Read(ctx context.Context, reads []*Read)
	// TakeHints returns and clears what has been hinted, as [cluster.Watcher] does.
	TakeHints() cluster.Hints
}

// Read is the read of one znode, with its answer.
type Read struct {
	Path  string
	List  bool // the names of the children instead of the data
	Watch bool

	Data  []byte
	Names []string
	Stat  cluster.Stat
	Err   error
}

// answered reports whether the server has answered, be it that there is no such znode or that it may not be read.
func (r *Read) answered() bool {
	return r.Err == nil || errors.Is(r.Err, cluster.ErrNoNode) || errors.Is(r.Err, cluster.ErrNoAuth)
}

// maxReads is how many reads are under way at the same time.
const maxReads = 64

// parallel is the [Source] of a daemon.
type parallel struct{ ReaderSession }

func (p parallel) Read(ctx context.Context, reads []*Read) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxReads)
	for _, r := range reads {
		g.Go(func() error {
			if r.List {
				r.Names, r.Stat, r.Err = p.Children(ctx, r.Path, r.Watch)
			} else {
				r.Data, r.Stat, r.Err = p.Get(ctx, r.Path, r.Watch)
			}
			if r.answered() {
				return nil
			}
			return r.Err // ends the others
		})
	}
	_ = g.Wait() // each read has its own error
}
