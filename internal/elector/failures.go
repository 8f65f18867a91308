package elector

import (
	"fmt"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// maxPause is the longest pause between two attempts when nobody is left who has not failed.
const maxPause = 30 * time.Second

// failures are the exclusions of the members that could lead, if each of them has failed. A common cause is likely
// then, such as a database that is down: elections in quick succession would not help.
type failures struct {
	nodes map[string]cluster.Exclusion // by id
	last  cluster.Exclusion            // the latest
}

// failuresOf returns nil if a member could lead that has not failed, or if none could lead even without exclusions.
func failuresOf(r policy.Ranking, list []cluster.Exclusion) *failures {
	failed := make(map[string]cluster.Exclusion, len(list))
	for _, x := range list {
		if x.Failed() {
			failed[x.Node] = x
		}
	}
	f := &failures{nodes: make(map[string]cluster.Exclusion)}
	for _, entry := range r.Entries {
		if !entry.EligibleOrExcluded() {
			continue
		}
		x, has := failed[entry.Member.ID]
		if !has {
			return nil
		}
		f.nodes[x.Node] = x
		if f.last.Node == "" || x.Term > f.last.Term {
			f.last = x
		}
	}
	if len(f.nodes) == 0 {
		return nil
	}
	return f
}

func (f *failures) has(node string) bool {
	_, has := f.nodes[node]
	return has
}

// next reports whether a node may be tried next: all have their turn.
func (f *failures) next(node string) bool {
	fewest := 0
	for id, x := range f.nodes {
		if id != f.last.Node && (fewest == 0 || x.Strikes < fewest) {
			fewest = x.Strikes
		}
	}
	x, has := f.nodes[node]
	return has && (len(f.nodes) == 1 || node != f.last.Node && x.Strikes <= fewest)
}

// pause returns how long after the last failure the next attempt begins: not at all once each member has failed, then
// half a second, doubling with each further failure. It follows from the record alone, so a new elector goes on with
// it.
func (f *failures) pause() time.Duration { return f.pauseAfter(0) }

// pauseAfter returns the same for when there have been more failures.
func (f *failures) pauseAfter(more int) time.Duration {
	repeated := more - len(f.nodes)
	for _, x := range f.nodes {
		repeated += x.Strikes
	}
	if repeated <= 0 {
		return 0
	}
	return min(500*time.Millisecond<<min(repeated-1, 10), maxPause)
}

// limit returns the exclusions with that of the last failure not longer than it takes until all others have been tried:
// it says more about what they have in common than about the node.
func (f *failures) limit(list []cluster.Exclusion, opt Options) []cluster.Exclusion {
	round := opt.Exclusion + (2*maxPause+opt.Takeover)*time.Duration(len(f.nodes))
	return cluster.Limit(list, f.last.Node, min(round, max(opt.Exclusion, opt.ExclusionMax)))
}

// reasons maps the nodes to what keeps them from being elected during the pause.
func (f *failures) reasons() map[string]string {
	m := make(map[string]string, len(f.nodes))
	for id, x := range f.nodes {
		m[id] = fmt.Sprintf("strike %d: %s; the next attempt begins %s after the last failure", x.Strikes,
			x.Reason, f.pause())
	}
	return m
}

// Failing says that every member that could lead has failed.
type Failing struct {
	// Last is the latest strike. Since is when the last of them failed for the first time, by electors' clocks; for
	// people. Pause is how long after the latest strike the next attempt begins, NextPause the same if there is one
	// more.
	Last             cluster.Exclusion
	Since            time.Time
	Pause, NextPause time.Duration
}

// failing returns nil unless each member that could lead has failed, the elected one as well.
func (f *failures) failing(elected string, ended bool) *Failing {
	if f == nil || !ended && !f.has(elected) {
		return nil
	}
	out := &Failing{Last: f.last, Pause: f.pause(), NextPause: f.pauseAfter(1)}
	for _, x := range f.nodes {
		if x.Since.After(out.Since) {
			out.Since = x.Since
		}
	}
	return out
}

// Describe returns a sentence for people: with the time of the next attempt if nobody is elected, else with what
// becomes of the present one.
func (f *Failing) Describe(elected bool) string {
	text := "every member that could lead has failed"
	if !f.Since.IsZero() {
		text += " since " + f.Since.UTC().Format(time.RFC3339)
	}
	text += "; the last reason: " + f.Last.Reason
	switch {
	case elected:
		text += fmt.Sprintf("; if this attempt fails as well, the next one begins %s later", f.NextPause)
	case f.Pause > 0 && !f.Last.Time.IsZero():
		text += "; the next attempt begins at " + f.Last.Time.Add(f.Pause).UTC().Format(time.TimeOnly) + " UTC"
	}
	return text
}
