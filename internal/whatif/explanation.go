package whatif

import "zkelectd/internal/cluster"

// Explanation says why the leader is the leader, and what would change it.
type Explanation struct {
	Leader string `json:"leader,omitempty"`
	Site   string `json:"site,omitempty"`
	Term   int64  `json:"term,omitempty"`
	Cause  string `json:"cause,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Preset names the ranking, Revision is the policy's, Circumstances is what the ranking takes into account.
	Preset        string                `json:"preset"`
	Revision      int64                 `json:"policy_revision"`
	Circumstances cluster.Circumstances `json:"circumstances"`
	Notes         []string              `json:"notes,omitempty"`
	Members       []RankedMember        `json:"members"`
	// Waiting says how long, and why, the leader waits before it starts its work; empty if it does not wait.
	Waiting string `json:"waiting,omitempty"`
	// Holding says why a better member does not take over, Changes what would change the outcome.
	Holding string   `json:"holding,omitempty"`
	Changes []string `json:"changes"`
}

// RankedMember is one member's place in the ranking, with the reasons.
type RankedMember struct {
	Rank     int       `json:"rank"` // 0 if the member is not eligible
	Node     string    `json:"node"`
	Site     string    `json:"site"`
	Refusals []Refusal `json:"refusals,omitempty"`
	Scores   []Score   `json:"scores"`
}

// Refusal is a filter that makes a member ineligible, with the reason.
type Refusal struct {
	Filter string `json:"filter"`
	Why    string `json:"why"`
}

// Score is what a ranker gives a member, as a number and in words.
type Score struct {
	Ranker string   `json:"ranker"`
	Value  *float64 `json:"value"` // null if there is none
	Words  string   `json:"words,omitempty"`
}
