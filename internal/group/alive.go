package group

import (
	"time"

	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/boottime"
)

// A loop that has nothing to do has no timers: the host asks it from time to time to show that it is alive.

// Beat makes each loop that has published nothing lately publish its view, which shows that it is alive. It is called
// every [status.PublishInterval]. It is safe for concurrent use, and does not block.
func (i *Instance) Beat() {
	now := boottime.Now()
	for _, m := range i.members {
		if now-m.group.view.Load().PublishedAt < status.PublishInterval(i.budget.Session)/4 {
			continue // such as one that renews a lease
		}
		m.group.notices.add(beatRequested)
	}
}

// showAlive records that the loop runs.
func (m *Member) showAlive() { m.shown.Store(int64(boottime.Now())) }

// shownAt returns when the loop showed last that it is alive, on CLOCK_BOOTTIME; 0 before Run.
func (m *Member) shownAt() time.Duration { return time.Duration(m.shown.Load()) }

// aliveUntil returns by when the loop must show again that it is alive; 0 before Run.
func (m *Member) aliveUntil() time.Duration {
	if at := m.shownAt(); at != 0 {
		return at + m.budget.Session
	}
	return 0
}
