package elector

import (
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// Placement is what an election takes into account of other groups; see [policy.Input]. The zero value means that
// nothing is known.
type Placement struct {
	Load      map[string]int
	Peers     map[string]string
	Relations policy.Graph
}

const (
	// maxPeerWait is how long an election waits for the decision of a group that this one follows.
	maxPeerWait = 2 * time.Second
	// placementInterval is how soon members are ranked again if none is eligible because of other groups.
	placementInterval = time.Second
)

// peerWait is an election that waits, or has waited, for another group's decision.
type peerWait struct {
	begun bool
	term  int64 // the elected term when it began
	since time.Duration
}

// awaits reports whether an election must wait because a group that this one follows is about to decide: otherwise this
// group would move twice. It sets d.Awaiting, and moves d.Wake forward to the end of the wait. An operator's move does
// not wait.
func (e *Elector) awaits(b rankingInput, d *Decision) bool {
	peer := b.in.Policy.Awaits(b.input())
	if peer == "" || b.move != nil {
		return false
	}
	term, _ := b.in.Snapshot.Terms()
	if !e.peers.begun || e.peers.term != term {
		e.peers = peerWait{begun: true, term: term, since: b.in.Now}
	}
	until := e.peers.since + maxPeerWait
	if b.in.Now >= until {
		return false
	}
	d.Awaiting, d.Wake = peer, cluster.Earliest(d.Wake, until)
	return true
}
