// Package status provides the views of a group and of one daemon that the commands, the HTTP API and the metrics present. The
// group's is derived from a snapshot; the daemon's is published by its loop. Everything here is read-only, so that all
// presentations agree.
package status

import (
	"time"

	"zkelectd/internal/cluster"
)

// Change is a daemon's change of phase, as the on_change hook receives it.
type Change struct {
	Node string `json:"node"`
	Site string `json:"site"`
	// Group is the group's name, with its slot if there is one.
	Group  string    `json:"group"`
	Root   string    `json:"root"`
	Term   int64     `json:"term"`
	State  string    `json:"state"`
	Reason string    `json:"reason"`
	Time   time.Time `json:"time"`
	// Fencing has the attempts of this daemon to fence earlier leaders in the term.
	Fencing []cluster.FencingResult `json:"fencing,omitempty"`
}

// Group is the whole group, as read from ZooKeeper.
type Group struct {
	// Name is the name of the group, without a slot.
	Name string `json:"-"`
	Root string `json:"root"`
	// Slot is the slot that this is about, Slots how many there are; empty and 0 for a group with one leader.
	Slot  string `json:"slot,omitempty"`
	Slots int    `json:"slots,omitempty"`
	// State is READY, PROGRESS, WAITING (elected, not yet taken over) or NONE.
	State string `json:"state"`
	// Leader is the node that holds leadership or is to take it over; empty if there is none.
	Leader string `json:"leader,omitempty"`
	Site   string `json:"site,omitempty"`
	Term   int64  `json:"term,omitempty"`
	// Since is when the state was entered, by the leader's clock.
	Since *time.Time `json:"since,omitempty"`
	// API is the address of the leader's HTTP API, empty if it has none. LeaseRemaining is what the leader has answered there,
	// see [Group.WithLease].
	API string `json:"api,omitempty"`
	// APIHost is the leader's host, empty unless the leader's own registration has this API address and the session of its
	// leadership. No other address may be asked.
	APIHost        string           `json:"-"`
	LeaseRemaining cluster.Duration `json:"lease_remaining,omitempty"`
	// LeaseUnconfirmed is why the leader, although it was asked, has not confirmed its lease; empty if it has, or was not asked.
	LeaseUnconfirmed string `json:"lease_unconfirmed,omitempty"`
	// Cause and Reason are the elector's, of Term; without a leader, of the last decision.
	Cause  string `json:"cause,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Next is the member that has been elected to replace a leader which has not released yet; empty if there is none.
	Next string `json:"next,omitempty"`
	// Heir is the member that is elected next if the leader is lost, and HeirSite its site; empty if nobody is, or if the elector has
	// published nothing.
	Heir     string `json:"heir,omitempty"`
	HeirSite string `json:"heir_site,omitempty"`
	// Waiting says how long, and why, a leader that takes over waits before it starts its work; empty if it does not wait.
	Waiting string `json:"waiting,omitempty"`
	// Stuck says why the holder can't give up leadership, as it has answered; see [Group.WithLease]. It is one of Problems, too.
	Stuck string `json:"-"`
	// Fencing has the attempts of the leader to fence earlier ones.
	Fencing []cluster.FencingResult `json:"fencing,omitempty"`
	// Failsafe is nil unless the policy enables failsafe mode, or the last leader may be in it.
	Failsafe *GroupFailsafe `json:"failsafe,omitempty"`
	// Obstructed is set if a current that is not the leader's keeps everybody from taking over.
	Obstructed bool `json:"-"`
	// Failing says that every member that could lead has failed, since when, and the last reason; empty otherwise. It is one of Problems,
	// too.
	Failing string `json:"failing,omitempty"`
	// NoLeader says why nobody leads, and none can be elected. Blocked is a sentence: who would lead instead, what holds that member
	// back, until when, and what to do. Both are forecasts, and empty otherwise.
	NoLeader string   `json:"no_leader,omitempty"`
	Blocked  string   `json:"preemption_blocked,omitempty"`
	Elector  string   `json:"elector,omitempty"`
	Policy   string   `json:"policy,omitempty"`
	Members  []Member `json:"members"`
	// Expected is how many members there should be: those that are registered, and those that are lost or stopped. Absent has the
	// nodes that have been members and are not registered now, until 'zkelectd forget' drops them.
	Expected int            `json:"members_expected"`
	Absent   []AbsentMember `json:"absent,omitempty"`
	// Requests are the operators' requests: pause, moves, cordons, a reelection.
	Requests []Request `json:"requests,omitempty"`
	// Exclusions lists strikes, in force or expired.
	Exclusions []cluster.Exclusion `json:"exclusions,omitempty"`
	// OpenTree reports whether anyone who can reach ZooKeeper can change the group's znodes, as a member last found.
	OpenTree bool `json:"open_tree,omitempty"`
	// Problems describes what is wrong with the group, such as records that cannot be read.
	Problems []string `json:"problems,omitempty"`
	// Passing has those of Problems that pass by themselves. The others need somebody to act.
	Passing []string `json:"passing_problems,omitempty"`

	heirless bool // the elector has published that there is no heir
}

// Member is one registered daemon.
type Member struct {
	Node     string            `json:"node"`
	Site     string            `json:"site"`
	Priority int               `json:"priority"`
	Labels   map[string]string `json:"labels,omitempty"`
	// Roles are leader, candidate, elector; none for a standby.
	Roles []string `json:"roles"`
	// Heir reports whether the member is elected next if the leader is lost.
	Heir bool `json:"heir,omitempty"`
	// Health is ok, or what the health probe of its host reports.
	Health string `json:"health"`
	// Eligible is yes, or why the member could not lead.
	Eligible string `json:"eligible"`
	// Latency is in milliseconds; it and Score are nil if not known.
	Latency *float64 `json:"latency_ms,omitempty"`
	Score   *float64 `json:"score,omitempty"`
	// Drift reports whether the policy in the host's configuration is not the one in force.
	Drift bool `json:"policy_drift,omitempty"`
	// Queued reports whether the member's takeover waits until its host may start further work.
	Queued bool `json:"queued,omitempty"`
	// API is the address of the member's HTTP API, empty if it has none that others can reach.
	API         string     `json:"api,omitempty"`
	Host        string     `json:"host"`
	PID         int        `json:"pid"`
	Incarnation string     `json:"incarnation"`
	Since       *time.Time `json:"since,omitempty"`
	// Reason is the member's verdict in the last decision; empty if the decision does not hold one, see [policy.Ranking.Verdicts].
	Reason string `json:"reason,omitempty"`
}

// Request is an operator's request in force.
type Request struct {
	ID int64 `json:"id"`
	// Slot is the only slot that it concerns; empty if it concerns the whole group.
	Slot string `json:"slot,omitempty"`
	// Kind is pause, hard-pause, move, scheduled-move, cordon, drain or reelect; Target is the node or site.
	Kind   string    `json:"kind"`
	Target string    `json:"target,omitempty"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	Time   time.Time `json:"time"`
	// Remaining is roughly how long it will stay in force, by this host's clock; nil if it has no end.
	Remaining *cluster.Duration `json:"remaining,omitempty"`
	// Due is when a scheduled move begins, by the clock of the host where it was submitted; nil for other requests.
	Due *time.Time `json:"due,omitempty"`
}

// KindScheduledMove is the kind of a move that begins later.
const KindScheduledMove = "scheduled-move"
