package host

import (
	"context"
	"reflect"
	"sync"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/work/workenv"
	"zkelectd/internal/work/worker"
)

// standby is the promotable work of a resource. It outlasts sessions and instances, and is replaced when an instance registers with another
// configuration of the work.
type standby struct {
	resource *resource

	mu      sync.Mutex
	running *worker.Standby // nil without promotable work
	spec    worker.Spec     // of running, as configured
}

// begin starts the work of the configuration in force, unless it runs; stop is how long it may take to stop. No member may run. It returns an
// error if work of another configuration does not end.
func (s *standby) begin(ctx context.Context, stop time.Duration) error {
	r := s.resource
	c := r.config()
	spec := workSpec(c)
	wanted := c.Child.Promotable() && !c.Node.Observer
	s.mu.Lock()
	before, same := s.running, reflect.DeepEqual(spec, s.spec)
	s.mu.Unlock()
	if before != nil && wanted && same {
		return nil
	}
	if err := s.close(ctx, stop); err != nil || !wanted {
		return err
	}
	run := spec
	run.StopTimeout, run.Warm.Limit = stop, r.host.probes
	f := workenv.Fencing{Node: c.Node.ID, Site: c.Node.Site, Group: r.name, Root: r.root}
	started := worker.NewStandby(worker.StandbyOptions{
		Open: func() worker.StandbyGuard { return r.host.opt.Guard.NewStandby(r.name) }, Log: r.log, Spec: run, Identity: f, Changed: r.nodeChanged,
	})
	s.mu.Lock()
	s.running, s.spec = started, spec
	s.mu.Unlock()
	return nil
}

// standbyEnd is how much longer than it may the work is given to end.
const standbyEnd = 5 * time.Second

// close stops the work, and returns when it is dead. It returns an error if that takes too long; then close can be called again.
func (s *standby) close(ctx context.Context, stop time.Duration) error {
	if before := s.work(); before != nil {
		limited, cancel := context.WithTimeout(ctx, stop+standbyEnd)
		defer cancel()
		if err := before.Close(limited); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.running = nil
	s.mu.Unlock()
	return nil
}

// work returns the promotable work; nil without.
func (s *standby) work() *worker.Standby {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// abandon keeps the workers of an abandoned instance from the work, and reports whether what they have promoted is dead. It waits for that
// until ctx ends.
func (s *standby) abandon(ctx context.Context) (proven bool) {
	running := s.work()
	return running == nil || running.Abandon(ctx)
}

// state is [group.Options.Standby].
func (s *standby) state() (state *cluster.Standby, unkillable string) {
	running := s.work()
	if running == nil {
		return nil, ""
	}
	now := running.State()
	return &now, running.Unkillable()
}

// nodeChanged makes the members publish the record of the node again.
func (r *resource) nodeChanged() {
	for _, g := range r.all() {
		g.core.Load().NodeChanged()
	}
}
