package sim

import (
	"context"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store"
)

// source returns what answers a reader's reads.
func (b breakage) source(r *reader) store.Source {
	if b.name == mixedMoments {
		return &lateHintSource{reader: r}
	}
	if b.name == anyTerm {
		return &anyTermSource{r}
	}
	return r
}

// anyTermSource reports each record as written when the clock ends, so that higher terms are accepted.
type anyTermSource struct{ *reader }

func (g *anyTermSource) Read(ctx context.Context, reads []*store.Read) {
	g.reader.Read(ctx, reads)
	for _, read := range reads {
		read.Stat.Time = time.Unix(cluster.MaxClock, 0)
	}
}

// lateHintSource delivers the hints of a collection only at the next one.
type lateHintSource struct {
	*reader
	under bool
}

func (d *lateHintSource) TakeHints() cluster.Hints {
	if d.under = !d.under; d.under {
		return d.reader.TakeHints()
	}
	return cluster.Hints{}
}

// budget returns what a daemon computes from its session timeout.
func (b breakage) budget(timeout, stop time.Duration) (cluster.Budget, error) {
	budget, err := cluster.NewBudget(timeout, 0, stop)
	if b.name == shortKill {
		budget.Kill = timeout * 5 / 100
		budget.LeaseWait = time.Duration(float64(budget.Lease+budget.Kill) * (1 + cluster.Drift) / (1 - cluster.Drift))
	}
	if b.name == endlessHandover {
		budget.Handover = forever
	}
	if b.name == longestLease {
		return cluster.NewBudget(2*timeout, 0, stop)
	}
	return budget, err
}
