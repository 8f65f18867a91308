package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
)

// requests lists what is in force.
func requests(s cluster.Snapshot) []Request {
	var all []Request
	add := func(kind, target string, o cluster.Request) {
		all = append(all, Request{ID: o.ID, Kind: kind, Target: target, By: o.By, Reason: o.Reason, Time: o.Time, Remaining: remaining(o)})
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
	if c.Reelect != nil {
		add("reelect", "", *c.Reelect)
	}
	for _, cordon := range c.Cordons {
		kind := "cordon"
		switch {
		case cordon.StepDown:
			kind = "step-down"
		case cordon.Drain:
			kind = "drain"
		}
		add(kind, cordon.Target(), cordon.Request)
	}
	return all
}

// exclusions are those on record, without the strikes that operators have lifted. Whether one has run out only the elector
// knows for sure, and writes down with its next decision; until then the clock of who looks must do.
func exclusions(s cluster.Snapshot) []cluster.Exclusion {
	var all []cluster.Exclusion
	for _, x := range s.Elected.Record.Exclusions {
		if slices.ContainsFunc(s.Control.Record.ClearedStrikes, func(f cluster.ClearedStrikes) bool { return f.Covers(x) }) {
			continue
		}
		x.Served = x.Served || (!x.Time.IsZero() && time.Since(x.Time) >= time.Duration(x.For))
		all = append(all, x)
	}
	return all
}

// remaining uses the clock of this host, and is never more than an elector last wrote down. Only the elector's own count
// ends a request.
func remaining(o cluster.Request) *cluster.Duration {
	if o.For == 0 {
		return nil
	}
	d := cluster.Duration(max(0, min(time.Until(o.Time.Add(time.Duration(o.For))), time.Duration(o.Remaining))))
	return &d
}

// String is the request in one line.
func (o Request) String() string {
	text := strings.TrimSpace(o.Kind + " " + o.Target)
	switch o.Kind {
	case "pause":
		text = "PAUSED, policy does not move the leader"
	case "hard-pause":
		text = "PAUSED HARD, nobody is elected"
	case "move":
		text = "move to " + o.Target
	}
	text += ", by " + o.By
	if o.Reason != "" {
		text += " (" + o.Reason + ")"
	}
	if o.Remaining != nil {
		return fmt.Sprintf("%s, about %s left", text, time.Duration(*o.Remaining).Round(time.Second))
	}
	return text + ", until it is ended"
}
