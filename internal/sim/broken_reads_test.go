package sim

import (
	"context"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
)

// source is what a reader's reads are answered by.
func (b breakage) source(r *reader) zkstore.Source {
	if b.name == mixing {
		return &deafSource{reader: r}
	}
	if b.name == gullible {
		return &gullibleSource{r}
	}
	return r
}

// gullibleSource says of each record that it was written when the clock ends, so that higher terms are believed.
type gullibleSource struct{ *reader }

func (g *gullibleSource) Read(ctx context.Context, reads []*zkstore.Read) {
	g.reader.Read(ctx, reads)
	for _, read := range reads {
		read.Stat.Time = time.Unix(cluster.MaxClock, 0)
	}
}

// deafSource passes on what was hinted during a collection only at the next one.
type deafSource struct {
	*reader
	under bool
}

func (d *deafSource) TakeHints() cluster.Hints {
	if d.under = !d.under; d.under {
		return d.reader.TakeHints()
	}
	return cluster.Hints{}
}

// budget is what a daemon computes from its session timeout.
func (b breakage) budget(timeout, stop time.Duration) (cluster.Budget, error) {
	budget, err := cluster.NewBudget(timeout, stop)
	if b.name == shortKill {
		budget.Kill = timeout * 5 / 100
		budget.LeaseWait = time.Duration(float64(budget.Lease+budget.Kill) * (1 + cluster.Drift) / (1 - cluster.Drift))
	}
	if b.name == longestLease {
		return cluster.NewBudget(2*timeout, stop)
	}
	return budget, err
}
