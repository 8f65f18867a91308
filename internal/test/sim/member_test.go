package sim

import (
	"time"

	"zkelectd/internal/cluster"
)

// resident is a host in a resource: what its daemon has for all leaderships of the resource together.
type resident struct {
	*host
	r       *resource
	name    string // the host's id, and the resource if there are several
	prio    int
	report  selfReport
	removed bool // the group is not in the daemon's configuration
	members []*member
	standby *standby // nil if the work is not promotable
	data    float64  // how much of the group's data it has

	instance *instance // nil while there is none
}

// member is a host in one leadership: what the daemon and the guard have for each of them.
type member struct {
	*resident
	g      *group
	name   string
	stop   time.Duration // the child's stop timeout
	budget cluster.Budget

	// The daemon.
	loop   *loop // nil while there is none
	memory *cluster.LastKnown
	had    int64 // the last term that this run of the daemon has acquired

	// The guard.
	slowest bool          // its next kill takes the longest time allowed
	lease   time.Duration // on the host's clock
	work    *work
	fencing *fencingRun
	app     *application // beside the daemon

	// How its takeovers and its child behave.
	stalls   bool // never becomes ready
	refuses  bool // cannot be started
	stubborn bool // ignores the stop signal
	undoing  time.Duration
	freezing bool // its child hangs in the kernel instead of dying
}

func newResident(h *host, r *resource) *resident {
	m := &resident{host: h, r: r, name: h.id, prio: h.w.rng.IntN(3)}
	if r.name != "" {
		m.name += "/" + r.name
	}
	for _, g := range r.groups {
		m.members = append(m.members, newMember(m, g))
	}
	if h.w.standbys != nil {
		m.standby = &standby{m: m, state: cluster.StandbyCold}
	}
	r.residents = append(r.residents, m)
	return m
}

func newMember(in *resident, g *group) *member {
	m := &member{resident: in, g: g, name: in.id, stop: in.w.traits.stop}
	if g.name != "" {
		m.name += "/" + g.name
	}
	var err error
	if m.budget, err = in.w.broken.budget(in.timeout, m.stop); err != nil {
		g.fail("budget: %v", err)
	}
	g.members = append(g.members, m)
	return m
}

// workTerm returns the term of the member's work, which may be a process that leads although the daemon does not know it; 0 if it has none.
func (m *member) workTerm() int64 {
	switch {
	case m.work != nil:
		return m.work.term
	case m.standby != nil && m.standby.proc != nil:
		return m.standby.proc.term
	}
	return 0
}
