package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/work/oneshot"
)

// lastRun is the last run of a job of exec. Its times are those of the ZooKeeper servers' clock.
type lastRun struct {
	Node    string    `json:"node"`
	Started time.Time `json:"started"`
	// Running is set while the job runs. Ended is when it ended by itself, Took after how long, and ExitStatus how: all
	// are nil for a run that was killed or stopped, or whose host has failed.
	Running    bool              `json:"running,omitempty"`
	Ended      *time.Time        `json:"ended,omitempty"`
	Took       *cluster.Duration `json:"took,omitempty"`
	ExitStatus *int              `json:"exit_status,omitempty"`
	// Next is when another run may start, by the flags of this one; nil if at any time.
	Next *time.Time `json:"next,omitempty"`
	// Error is why the run is not known; empty if it is.
	Error string `json:"error,omitempty"`
}

// readLastRun returns the last run of a job; nil if the group, whose status, or that of its slots, is given, is not
// that of a job.
func (g group) readLastRun(ctx context.Context, views ...status.Group) *lastRun {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	read, err := oneshot.ReadRun(ctx, g.session, g.paths)
	switch {
	case err != nil:
		return &lastRun{Error: fmt.Sprintf("cannot read znode %s: %v", g.paths.Run(), err)}
	case !read.Exists:
		return nil
	case read.Err != nil:
		return &lastRun{Error: read.Err.Error()}
	}
	return lastRunOf(read, slices.ContainsFunc(views, func(view status.Group) bool {
		return view.Leader == read.Record.Node && view.Term == read.Record.Term
	}))
}

// lastRunOf returns the run of a record. leads is set if its host leads in its term.
func lastRunOf(read cluster.Stored[cluster.Run], leads bool) *lastRun {
	rec := read.Record
	run := &lastRun{Node: rec.Node, Started: cluster.StartOf(read).UTC(), Running: leads && !rec.Ended}
	if rec.Ended {
		ended := read.Stat.Time.UTC()
		took := cluster.Duration(max(0, ended.Sub(run.Started)).Truncate(time.Millisecond))
		run.Ended, run.Took, run.ExitStatus = &ended, &took, &rec.Status
	}
	if next := cluster.NextRun(read, run.Running).UTC(); !next.IsZero() {
		run.Next = &next
	}
	return run
}

// cells are those of the run in a table: when it started, how it ended, how long it took, where it ran, and when the
// next one may start.
func (r *lastRun) cells() []any {
	if r.Error != "" {
		return []any{"-", r.Error, "-", "-", "-"}
	}
	how, took, next := "end not known: it was killed or stopped, or its host was lost", "-", "at any time"
	switch {
	case r.Running:
		how = "running"
	case r.ExitStatus != nil:
		how = fmt.Sprintf("exit status %d", *r.ExitStatus)
	}
	if r.Took != nil {
		took = r.Took.String()
	}
	if r.Next != nil {
		next = "from " + r.Next.Local().Format(time.DateTime)
	}
	return []any{r.Started.Local().Format(time.DateTime), how, took, r.Node, next}
}

// writeJobs writes a line for the last run of each job.
func writeJobs(w io.Writer, jobs []groupStatus) {
	t := newTable(w, "JOB", "LAST RUN", "RESULT", "TOOK", "NODE", "NEXT RUN")
	for _, g := range jobs {
		t.row(append([]any{cluster.GroupOf(g.Name)}, g.LastRun.cells()...)...)
	}
	t.Flush() // as for the groups
}

// jobStatus is the status of a single group that is that of a job.
type jobStatus struct {
	status.Group
	LastRun *lastRun `json:"last_run"`
}

// Table implements tabular.
func (j jobStatus) Table() string { return j.Group.Table() + j.line() }

// WideTable implements tabular.
func (j jobStatus) WideTable() string { return j.Group.WideTable() + j.line() }

func (j jobStatus) line() string {
	c := j.LastRun.cells()
	return printable(fmt.Sprintf("last run of the job: %v, %v, took %v, on %v; the next run may start: %v", c...)) + "\n"
}
