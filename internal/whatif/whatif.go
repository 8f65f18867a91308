// Package whatif answers what would happen: it lets the real elector decide on a changed copy of a snapshot, and again
// as if its decision had been carried out, until nothing moves any more. It is pure and writes nothing.
package whatif

import (
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/policy"
	"zkelectd/internal/watchdog"
)

// Change is what the snapshot is changed by.
type Change struct {
	// Without and WithoutSites are lost.
	Without, WithoutSites []string
	// Cordon must not be chosen, Drain must not lead on either.
	Cordon, Drain []string
}

// Question is what is asked.
type Question struct {
	// Snapshot has the members, as an elector or an onlooker reads it.
	Snapshot cluster.Snapshot
	Policy   *policy.Policy
	Change   Change
	Options  elector.Options
	// Ask answers for the program of an exec policy; nil leaves that to its fallback.
	Ask func(policy.Input) *policy.Answer
	// Wall dates what would be written.
	Wall time.Time
}

// Outcome is the group when nothing moves any more.
type Outcome struct {
	// Leader would lead; zero if nobody would.
	Leader cluster.Member
	// Steps are the decisions on the way, none if the present one stands.
	Steps []cluster.Elected
	// Last is the last look at the group: its ranking, and what holds a better member back.
	Last elector.Decision
	// Problems are what is odd about the policy.
	Problems []string
}

// Led tells that somebody leads.
func (o Outcome) Led() bool { return o.Leader.Name != "" }

// maxSteps ends a forecast that goes round in circles, which would be an error in a policy's program.
const maxSteps = 40

// Run makes the forecast.
func Run(q Question) Outcome {
	s := changed(q.Snapshot, q.Change, q.Wall)
	out := Outcome{Problems: q.Policy.Problems(s.Members)}
	core := elector.New(q.Options)
	dog := watchdog.New(watchdog.Options{Takeover: time.Hour, StrikeResetAfter: 1000 * time.Hour, Trust: cluster.Trust{LeaseWait: time.Second}})
	now := time.Hour
	for range maxSteps {
		found := dog.Observe(s, now)
		in := elector.Input{Snapshot: s, Policy: q.Policy, Now: now, Wall: q.Wall, Exclusions: found.Exclusions, Age: found.Age}
		if question, wanted := core.Question(in); wanted && q.Ask != nil {
			in.Answer = q.Ask(question)
		}
		out.Last = core.Decide(in)
		switch d := out.Last; {
		case d.Elect != nil:
			out.Steps = append(out.Steps, *d.Elect)
			s = carriedOut(s, *d.Elect)
		case d.Control != nil:
			s.Control.Record = *d.Control
		case d.Note != "" && d.Wake > now && retries(s, d):
			now = d.Wake
		default:
			out.Leader = leader(s)
			return out
		}
	}
	return out
}

// retries tells that nobody may lead, and that somebody is only kept out for a moment after a strike.
func retries(s cluster.Snapshot, d elector.Decision) bool {
	struck := func(e policy.Entry) bool {
		return len(e.Refusals) == 1 && e.Refusals[0].Filter == policy.ExcludedFilter
	}
	return s.Elected.Readable() && !slices.ContainsFunc(d.Ranking.Entries, policy.Entry.Allowed) && slices.ContainsFunc(d.Ranking.Entries, struck)
}

// changed applies a change. What it is given is not modified.
func changed(s cluster.Snapshot, c Change, wall time.Time) cluster.Snapshot {
	gone := func(m cluster.Member) bool {
		return slices.Contains(c.Without, m.ID) || slices.Contains(c.WithoutSites, m.Node.Record.Site)
	}
	for _, m := range s.Members {
		if gone(m) && s.Current.Readable() && s.Current.Record.Incarnation == m.Name {
			s.Current = cluster.Slot[cluster.Current]{}
		}
	}
	s.Members = slices.DeleteFunc(slices.Clone(s.Members), gone)
	s.Elector, s.Leadership, s.SelfLost = true, true, false
	if len(s.Members) > 0 {
		s.Self = s.Members[0].Incarnation
	}
	s.Elected.Record.Exclusions = cluster.Serve(s.Elected.Record.Exclusions, func(x cluster.Exclusion) bool {
		return !x.Time.IsZero() && !wall.Before(x.Time.Add(time.Duration(x.For))) // only an elector knows for sure
	})
	control := s.Control.Record.Clone()
	for i, id := range slices.Concat(c.Cordon, c.Drain) {
		control.Cordons = append(control.Cordons, cluster.Cordon{Request: control.Next(hypothesis), Node: id, Drain: i >= len(c.Cordon)})
	}
	if len(control.Cordons) > 0 && s.Control.Err == nil {
		s.Control.Exists, s.Control.Record = true, control
	}
	return s
}

var hypothesis = cluster.Request{By: "whatif"}

// carriedOut is the group once the elected member leads.
func carriedOut(s cluster.Snapshot, e cluster.Elected) cluster.Snapshot {
	s.Elected = cluster.Slot[cluster.Elected]{Exists: true, Record: e, Stat: s.Elected.Stat}
	s.Elected.Stat.Version++
	fence := cluster.Fence{Term: e.Term, Node: e.Node, Site: e.Site, Incarnation: e.Incarnation, State: cluster.FenceReady}
	s.Fence = cluster.Slot[cluster.Fence]{Exists: true, Record: fence, Stat: s.Fence.Stat}
	current := cluster.Current{Term: e.Term, Node: e.Node, Site: e.Site, Incarnation: e.Incarnation, State: cluster.CurrentReady}
	s.Current = cluster.Slot[cluster.Current]{Exists: true, Record: current}
	return s
}

// leader is who holds leadership, or is about to.
func leader(s cluster.Snapshot) cluster.Member {
	if !s.Elected.Readable() || s.Ended() {
		return cluster.Member{}
	}
	m, _ := s.Member(s.Elected.Record.Incarnation)
	return m
}

// Loss is one thing to lose, and what would come of it.
type Loss struct {
	Node, Site string // one of them
	Outcome    Outcome
}

// Losses forecasts the loss of every single node and of every single site.
func Losses(q Question) []Loss {
	var all []Loss
	var sites []string
	members := slices.SortedStableFunc(slices.Values(q.Snapshot.Members), func(a, b cluster.Member) int { return strings.Compare(a.ID, b.ID) })
	for _, m := range members {
		if m.Superseded {
			continue
		}
		lost := q
		lost.Change.Without = append(slices.Clone(q.Change.Without), m.ID)
		all = append(all, Loss{Node: m.ID, Outcome: Run(lost)})
		if site := m.Node.Record.Site; !slices.Contains(sites, site) {
			sites = append(sites, site)
		}
	}
	slices.Sort(sites)
	for _, site := range sites {
		lost := q
		lost.Change.WithoutSites = append(slices.Clone(q.Change.WithoutSites), site)
		all = append(all, Loss{Site: site, Outcome: Run(lost)})
	}
	return all
}
