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
	Node   string    `json:"node"`
	Site   string    `json:"site"`
	Root   string    `json:"root"`
	Term   int64     `json:"term"`
	State  string    `json:"state"`
	Reason string    `json:"reason"`
	Time   time.Time `json:"time"`
}

// Group is the whole group, as read from ZooKeeper.
type Group struct {
	Root string `json:"root"`
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
	// Cause and Reason are the elector's, of Term; without a leader, of the last decision.
	Cause  string `json:"cause,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Next is the member that has been elected to replace a leader which has not released yet; empty if there is none.
	Next string `json:"next,omitempty"`
	// Waiting says how long, and why, a leader that takes over waits before it starts its work; empty if it does not wait.
	Waiting string   `json:"waiting,omitempty"`
	Elector string   `json:"elector,omitempty"`
	Policy  string   `json:"policy,omitempty"`
	Members []Member `json:"members"`
	// Requests are the operators' requests in force: pause, move, cordons, a reelection.
	Requests []Request `json:"requests,omitempty"`
	// Exclusions lists strikes, in force or expired.
	Exclusions []cluster.Exclusion `json:"exclusions,omitempty"`
	// OpenTree reports whether anyone who can reach ZooKeeper can change the group's znodes, as a member last found.
	OpenTree bool `json:"open_tree,omitempty"`
	// Problems describes what is wrong with the group, such as records that cannot be read.
	Problems []string `json:"problems,omitempty"`
}

// Member is one registered daemon.
type Member struct {
	Node     string            `json:"node"`
	Site     string            `json:"site"`
	Priority int               `json:"priority"`
	Labels   map[string]string `json:"labels,omitempty"`
	// Roles are leader, candidate, elector; none for a standby.
	Roles []string `json:"roles"`
	// Health is ok, or why the member is not eligible under any policy.
	Health string `json:"health"`
	// Latency is in milliseconds; it and Score are nil if not known.
	Latency *float64 `json:"latency_ms,omitempty"`
	Score   *float64 `json:"score,omitempty"`
	// Drift reports whether the policy of its own configuration is not the one in force.
	Drift       bool       `json:"policy_drift,omitempty"`
	Host        string     `json:"host"`
	PID         int        `json:"pid"`
	Incarnation string     `json:"incarnation"`
	Since       *time.Time `json:"since,omitempty"`
	// Why is the member's verdict in the last decision.
	Why string `json:"why,omitempty"`
}

// Request is an operator's request in force.
type Request struct {
	ID int64 `json:"id"`
	// Kind is pause, hard-pause, move, cordon, drain, step-down or reelect; Target is the node or site.
	Kind   string    `json:"kind"`
	Target string    `json:"target,omitempty"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	Time   time.Time `json:"time"`
	// Remaining is roughly how long it will stay in force, by this host's clock; nil if it has no end.
	Remaining *cluster.Duration `json:"remaining,omitempty"`
}
