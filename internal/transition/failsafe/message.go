package failsafe

import (
	"time"

	"zkelectd/internal/cluster"
)

// Request asks a member to promise that it lets nobody take over from the holder of a term. It must be authenticated as
// a whole.
type Request struct {
	// Group is the path of the group's fence.
	Group string `json:"group"`
	Term  int64  `json:"term"`
	// Holder and Member are incarnations. A promise of one incarnation says nothing about another one.
	Holder string `json:"holder"`
	Member string `json:"member"`
	// Round grows with every round of the term, and Start is random for each instance: a reply to another round counts
	// for nothing.
	Round uint64 `json:"round"`
	Start uint64 `json:"start"`
	// Wait is how long the promise must last on the member's clock, counted from its reply.
	Wait cluster.Duration `json:"wait"`
	// Dry asks what the member would answer. It binds nobody and counts for nothing.
	Dry bool `json:"dry,omitempty"`
}

// Reply is a member's answer. It must be authenticated as a whole.
type Reply struct {
	// Request is the request that it answers.
	Request Request `json:"request"`
	OK      bool    `json:"ok"`
	// Reason says why the member does not promise.
	Reason Reason `json:"reason,omitempty"`
	// Retry is when it may do so, counted from now; 0 if it does not know.
	Retry cluster.Duration `json:"retry,omitempty"`
}

// Reason is why a member does not promise.
type Reason string

// The reasons.
const (
	ReasonIncarnation Reason = "incarnation" // the request is for another incarnation, or for no member of this daemon
	ReasonVetoed      Reason = "vetoed"      // the member has vetoed the term
	ReasonGone        Reason = "gone"        // the member has seen that current of the term is gone
	ReasonContact     Reason = "contact"     // ZooKeeper answers the member
	ReasonProbing     Reason = "probing"     // the member does not know yet whether ZooKeeper answers it
	ReasonWait        Reason = "wait"        // the promise would last longer than the member may promise
	ReasonUnreachable Reason = "unreachable" // the member was not asked, or has not answered
)

// Text describes the reason for people.
func (r Reason) Text() string {
	switch r {
	case ReasonIncarnation:
		return "it has registered again or left the group since"
	case ReasonVetoed:
		return "it has allowed another member to take over"
	case ReasonGone:
		return "it has seen that the leader's session ended"
	case ReasonContact:
		return "ZooKeeper answers it"
	case ReasonProbing:
		return "it is finding out whether ZooKeeper answers it"
	case ReasonWait:
		return "its session timeout is shorter than the leader's"
	case ReasonUnreachable:
		return "it could not be asked, or has not answered"
	}
	return string(r)
}

// Message is a request and the member that it goes to, at an address.
type Message struct {
	To      cluster.FailsafeMember
	Address string
	Request
}

// Group returns what requests call a group, or a slot of one.
func Group(p cluster.Paths) string { return p.Leader() }

// Patience is how long a write goes unanswered before ZooKeeper counts as unreachable for a member whose lease is D. It
// decides about availability only.
func Patience(lease time.Duration) time.Duration { return lease / 6 }
