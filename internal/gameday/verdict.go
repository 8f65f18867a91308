package gameday

import (
	"cmp"
	"slices"
	"time"

	"zkelectd/internal/cluster"
)

// The results of drills.
const (
	Kept        = "kept"
	Late        = "late"
	Aborted     = "aborted"
	Interrupted = "interrupted"
)

// Outcome is what was planned, and what has happened.
type Outcome struct {
	Drill Drill
	// Leader led when the drill began, in Term; Successor is the forecast of who takes over.
	Leader, Successor string
	Term              int64
	// Promise is the longest time without a READY leader, in words in Terms.
	Promise time.Duration
	Terms   string
	// Observer has what was seen.
	Observer *Observer
	// History has the terms since then, which the electors have recorded.
	History []cluster.PastTerm
	// Restarted is how long the child was away until it was started again on the same host; 0 if it was not.
	Restarted time.Duration
	// Again is set if the leader's host is a member again. Forecast is who leads in the end by policy, Now who does.
	Again         bool
	Forecast, Now string
}

// Leaderless returns the longest time without a READY leader. The electors' own figures are exact, but they have them only for what
// they saw themselves.
func (o Outcome) Leaderless(now time.Time) time.Duration {
	var worst time.Duration
	for _, t := range o.History {
		if t.Leaderless == nil {
			return o.Observer.Worst(now)
		}
		worst = max(worst, time.Duration(*t.Leaderless))
	}
	if len(o.History) == 0 {
		return o.Observer.Worst(now)
	}
	return max(worst, o.Observer.Vacant(now))
}

// Checks compares what has happened with what is promised.
func (o Outcome) Checks(now time.Time) []cluster.GameDayCheck {
	var all []cluster.GameDayCheck
	add := func(what, promised, seen string, kept bool) {
		all = append(all, cluster.GameDayCheck{What: what, Promised: promised, Seen: seen, Kept: kept})
	}
	ms := func(d time.Duration) string { return d.Round(time.Millisecond).String() }
	most := "at most " + ms(o.Promise) + " (" + o.Terms + ")"
	leaderless := o.Leaderless(now)
	add("time without a READY leader", most, ms(leaderless), leaderless <= o.Promise)
	holders := o.holders()
	add("one leader at a time", "each in a higher term", cmp.Or(o.Observer.fault, order(holders)), o.Observer.fault == "")
	if i := o.firstNew(holders); i >= 0 {
		add("who took over", o.Successor, holders[i].Node, holders[i].Node == o.Successor)
	} else if o.Drill == Move || o.Drill == Daemon {
		add("who took over", o.Successor, "nobody", false)
	}
	yes := map[bool]string{true: "yes", false: "no"}
	switch o.Drill {
	case Child:
		if o.Restarted > 0 {
			add("child was started again", most, "after "+ms(o.Restarted), o.Restarted <= o.Promise)
		} else if o.firstNew(holders) < 0 {
			add("child was started again", most, "no", false)
		}
	case Move:
		add("leadership came back", o.Leader, cmp.Or(o.Now, "nobody"), o.Now == o.Leader)
	case Daemon, Network:
		add(o.Leader+" is a member again", "yes", yes[o.Again], o.Again)
		add("leader in the end, by policy", cmp.Or(o.Forecast, "nobody"), cmp.Or(o.Now, "nobody"), o.Now == o.Forecast)
	}
	return all
}

// holders returns the READY leaders by their terms: those that were seen, and those that only the electors have seen.
func (o Outcome) holders() []Holder {
	all := slices.Clone(o.Observer.Holders())
	for _, t := range o.History {
		if h := (Holder{t.Term, t.Node}); !slices.Contains(all, h) {
			all = append(all, h)
		}
	}
	slices.SortStableFunc(all, func(a, b Holder) int { return cmp.Compare(a.Term, b.Term) })
	return all
}

// firstNew returns the index of the first holder after the leader's term, or -1.
func (o Outcome) firstNew(holders []Holder) int {
	for i, h := range holders {
		if h.Term > o.Term {
			return i
		}
	}
	return -1
}

// Result returns the result for some checks.
func Result(checks []cluster.GameDayCheck) string {
	for _, c := range checks {
		if !c.Kept {
			return Late
		}
	}
	return Kept
}
