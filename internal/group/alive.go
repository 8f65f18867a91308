package group

import (
	"time"

	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/boottime"
)

// A loop that has nothing to do has no timers: the host asks it from time to time to show that it is alive.

// Beat makes each loop that has done nothing lately show that it is alive. Between two calls may lie 3/2 of [status.PublishInterval].
// It is safe for concurrent use, and does not block.
func (i *Instance) Beat() {
	now := boottime.Now()
	for _, m := range i.members {
		if now-m.shownAt() < status.PublishInterval(i.budget.Session)/4 {
			continue // such as one that renews a lease
		}
		m.group.notices.add(beatRequested)
	}
}

// showAlive records that the loop runs.
func (m *Member) showAlive() { m.shown.Store(int64(boottime.Now())) }

// shownAt returns when the loop showed last that it is alive and that its view is up to date, on CLOCK_BOOTTIME; 0 before Run.
func (m *Member) shownAt() time.Duration { return time.Duration(m.shown.Load()) }

// aliveUntil returns by when the loop must show again that it is alive; 0 before Run.
func (m *Member) aliveUntil() time.Duration {
	if at := m.shownAt(); at != 0 {
		return at + m.budget.Session
	}
	return 0
}

// beat answers [Instance.Beat]. It publishes the view if it has changed without an event of the loop.
func (m *Member) beat() {
	v := m.group.view.Load()
	if now := m.live(); now != liveFields(v) {
		m.publish()
	}
}

// live are the fields of the view that change without an event of the loop.
type live struct {
	session, connected, openTree       bool
	unhealthy, containment, unkillable string
	drift                              drift
	device                             *status.WatchdogDevice
}

func (m *Member) live() live {
	g := m.group
	return live{
		!m.over && m.session.Err() == nil, m.session.Connected(), m.registrar().openTree.Load(), g.opt.Health.UnhealthyReason(),
		string(g.opt.Containment()), m.guard.Unkillable(), m.registrar().driftSeen(), g.watchdogDevice(),
	}
}

func liveFields(v *status.Daemon) live {
	return live{v.Session, v.Connected, v.OpenTree, v.Unhealthy, v.Containment, v.Unkillable, drift{v.Drift, v.SlotsDrift}, v.WatchdogDevice}
}
