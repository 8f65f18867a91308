package status

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"zkelectd/internal/cluster"
)

// Request is an operator's request in force.
type Request struct {
	ID int64 `json:"id"`
	// Slot is the only slot that it concerns; empty if it concerns the whole group.
	Slot string `json:"slot,omitempty"`
	// Kind is pause, hard-pause, move, cordon, drain, reelect or proposal; Target is the node or site. Answer is that
	// to a proposal.
	Kind   string    `json:"kind"`
	Target string    `json:"target,omitempty"`
	Answer string    `json:"answer,omitempty"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	Time   time.Time `json:"time"`
	// Remaining is roughly how long it will stay in force, by this host's clock; nil if it has no end.
	Remaining *cluster.Duration `json:"remaining,omitempty"`
}

// requests returns the requests in force.
func requests(s cluster.Snapshot) []Request {
	var all []Request
	add := func(kind, target string, r cluster.Request) {
		all = append(all, Request{ID: r.ID, Slot: r.Slot, Kind: kind, Target: target, By: r.By, Reason: r.Reason,
			Time: r.Time, Remaining: remaining(r)})
	}
	c := s.Control.Record
	if c.Pause != nil {
		kind := "pause"
		if c.Pause.Hard {
			kind = "hard-pause"
		}
		add(kind, "", c.Pause.Request)
	}
	if c.Move != nil {
		add("move", c.Move.Target(), c.Move.Request)
	}
	for _, m := range c.Moves {
		add("move", m.Target(), m.Request)
	}
	if c.Reelect != nil {
		add("reelect", "", *c.Reelect)
	}
	for _, r := range c.Reelections {
		add("reelect", "", r)
	}
	for _, p := range c.Proposals {
		add("proposal", p.Node, p.Request)
		if p.Answer != "" {
			all[len(all)-1].Answer = string(p.Answer) + " by " + p.AnsweredBy
		}
	}
	for _, cordon := range c.Cordons {
		kind := "cordon"
		if cordon.Drain {
			kind = "drain"
		}
		add(kind, cordon.Target(), cordon.Request)
	}
	return all
}

// remaining returns how long a request will stay in force by the clock of this host, but not more than an elector last
// wrote down; nil if it has no end. Only the elector ends a request, by its own clock.
func remaining(r cluster.Request) *cluster.Duration {
	if r.For == 0 {
		return nil
	}
	d := cluster.Duration(max(0, min(time.Until(r.Time.Add(time.Duration(r.For))), time.Duration(r.Remaining))))
	return &d
}

// String returns the request in one line.
func (r Request) String() string {
	text := strings.TrimSpace(r.Kind + " " + r.Target)
	switch r.Kind {
	case "pause":
		text = "PAUSED, policy does not replace a healthy leader"
	case "hard-pause":
		text = "PAUSED HARD, a leader that fails is not replaced"
	case "move":
		text = "move to " + r.Target
	case "proposal":
		text = cmp.Or(r.Answer, "WAITS FOR APPROVAL") + ": the election of " + r.Target
	}
	if r.Slot != "" {
		text += " in slot " + r.Slot
	}
	text += ", by " + r.By
	if r.Reason != "" {
		text += " (" + r.Reason + ")"
	}
	if r.Remaining != nil {
		return fmt.Sprintf("%s, about %s left", text, time.Duration(*r.Remaining).Round(time.Second))
	}
	return text + ", until it is ended"
}
