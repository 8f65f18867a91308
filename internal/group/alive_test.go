package group

import (
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/boottime"
)

// A loop that has done something without publishing its view is asked to: only the view shows others that it is alive.
func TestBeatAsksWhoHasPublishedNothing(t *testing.T) {
	const session = 6 * time.Second
	for _, c := range []struct {
		published time.Duration // so long ago
		asked     bool
	}{{0, false}, {session, true}} {
		g := &Group{notices: notices{c: make(chan struct{}, 1)}}
		g.view.Store(&status.Daemon{PublishedAt: boottime.Now() - c.published})
		m := &Member{group: g}
		m.showAlive()
		i := &Instance{members: []*Member{m}, budget: cluster.Budget{Session: session}}
		if i.Beat(); g.notices.take()&beatRequested != 0 != c.asked {
			t.Errorf("published %s ago: %t", c.published, !c.asked)
		}
	}
}
