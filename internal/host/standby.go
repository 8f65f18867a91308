package host

import (
	"context"
	"os"
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

// begin starts the work of the configuration in force, unless it runs; stop is how long it may take to stop. No member may run.
func (s *standby) begin(stop time.Duration) {
	r := s.resource
	c := r.config()
	spec := workSpec(c)
	wanted := c.Child.Promotable() && !c.Node.Observer
	s.mu.Lock()
	before, same := s.running, reflect.DeepEqual(spec, s.spec)
	s.mu.Unlock()
	if before != nil && wanted && same {
		return
	}
	s.close()
	if !wanted {
		return
	}
	run := spec
	run.StopTimeout, run.Warm.Limit = stop, r.host.probes
	f := workenv.Fencing{Node: c.Node.ID, Site: c.Node.Site, Group: r.name, Root: r.root}
	started := worker.NewStandby(worker.StandbyOptions{
		Open: func() worker.StandbyGuard { return r.host.opt.Guard.NewStandby(r.name) }, Log: r.log, Spec: run,
		Env: workenv.BuildStandby(os.Environ(), f, c.Child.Env), Changed: r.nodeChanged,
	})
	s.mu.Lock()
	s.running, s.spec = started, spec
	s.mu.Unlock()
}

// close stops the work, and returns when it is dead.
func (s *standby) close() {
	if before := s.work(); before != nil {
		before.Close()
	}
	s.mu.Lock()
	s.running = nil
	s.mu.Unlock()
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
