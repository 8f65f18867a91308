package status

import "zkelectd/internal/cluster"

// Explanation is why the leader is the leader, and what would change it.
type Explanation struct {
	Leader string `json:"leader,omitempty"`
	Site   string `json:"site,omitempty"`
	Term   int64  `json:"term,omitempty"`
	Cause  string `json:"cause,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Preset is what ranks, Revision that of the policy, Circumstances what the ranking is made under.
	Preset        string                `json:"preset"`
	Revision      int64                 `json:"policy_revision"`
	Circumstances cluster.Circumstances `json:"circumstances"`
	Notes         []string              `json:"notes,omitempty"`
	Members       []Explained           `json:"members"`
	// Waiting says how long, and why, the leader waits before it starts its work; empty if it does not.
	Waiting string `json:"waiting,omitempty"`
	// Holding says why a better member does not take over; Changes what would change the outcome.
	Holding string   `json:"holding,omitempty"`
	Changes []string `json:"changes"`
}

// Explained is one member's place.
type Explained struct {
	Rank     int       `json:"rank"` // 0 if it may not lead
	Node     string    `json:"node"`
	Site     string    `json:"site"`
	Refusals []Refusal `json:"refusals,omitempty"`
	Scores   []Score   `json:"scores"`
}

// Refusal is a filter that keeps a member from leading.
type Refusal struct {
	Filter string `json:"filter"`
	Why    string `json:"why"`
}

// Score is what a ranker gives a member.
type Score struct {
	Ranker string   `json:"ranker"`
	Value  *float64 `json:"value"` // null if there is none
	Words  string   `json:"words,omitempty"`
}
