// Package whatif forecasts what would happen in a group: it lets the real elector decide on a changed copy of a
// snapshot, and again as if its decision had been carried out, until nothing changes any more. It also explains why the
// leader is the leader. It is pure and writes nothing.
package whatif

import (
	"cmp"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/policy"
	"zkelectd/internal/watchdog"
)

// Change is a hypothetical change of the group.
type Change struct {
	// Without and WithoutSites are the nodes and sites that are lost.
	Without, WithoutSites []string
	// Cordon and Drain are the nodes that are cordoned and drained.
	Cordon, Drain []string
}

// Question is the input of a forecast.
type Question struct {
	// Snapshot is the present group. It must include the members.
	Snapshot cluster.Snapshot
	Policy   *policy.Policy
	Change   Change
	Options  elector.Options
	// Others are the other slots of the group; none in a group with one leader.
	Others []cluster.SlotState
	// Slots has the questions about all slots, if this one is about a whole group with slots; otherwise nil. Snapshot
	// then has only what they share.
	Slots []Question
	// Ask returns the answer of an exec policy's ranking program; if it is nil, the policy's fallback ranks.
	Ask func(policy.Input) *policy.Answer
	// Placement is what is known of other groups.
	Placement elector.Placement
	// StrikeResetAfter is how long a leader must have been READY before its strikes are cleared; 0 if that is not known.
	StrikeResetAfter time.Duration
	// Wall is the time of the forecast's records.
	Wall time.Time
}

// Leaders returns the questions about the leaders of the group: those of its slots, or else this one.
func (q Question) Leaders() []Question {
	if q.Slots == nil {
		return []Question{q}
	}
	return q.Slots
}

// Outcomes returns the forecast for each of [Question.Leaders].
func (q Question) Outcomes() []Outcome {
	if q.Slots == nil {
		return []Outcome{Run(q)}
	}
	return RunSlots(q.Slots)
}

// Outcome is the group once nothing changes any more.
type Outcome struct {
	// Leader is the leader; zero if there is none.
	Leader cluster.Member
	// Steps are the elections until then, none if the present decision stands.
	Steps []cluster.Elected
	// Last is the elector's last decision: it has the ranking.
	Last elector.Decision
	// Blocked is a sentence: who would lead instead, what holds that member back, until when, and what to do; empty if
	// nothing does.
	Blocked string
	// Problems are likely mistakes in the policy.
	Problems []string
}

// HasLeader reports whether there is a leader.
func (o Outcome) HasLeader() bool { return o.Leader.Name != "" }

// Refusals says why members are not eligible, or why there is no election although they are.
func (o Outcome) Refusals() string { return cmp.Or(o.Last.Ranking.Refusals(), o.Last.Note) }

// WhyNoLeader says why there is no leader.
func (o Outcome) WhyNoLeader() string { return cmp.Or(o.Last.Note, o.Refusals(), o.Last.Newer) }

// Succession returns the forecast for the loss of the leader, or for now if there is none: the one answer to who could
// lead instead, and why the others could not.
func Succession(q Question, leader string) Outcome {
	if leader != "" {
		q.Change.Without = append(slices.Clone(q.Change.Without), leader)
	}
	return Run(q)
}

// maxSteps ends a forecast that does not settle, which would be an error of a ranking program.
const maxSteps = 40

// Run returns the forecast.
func Run(q Question) Outcome {
	q.Snapshot = q.applyChange()
	out, _ := settle(q)
	if out.Blocked == "" {
		out.Blocked = heldByHysteresis(q, out)
	}
	return out
}

// settle runs the elector on the snapshot of q, as it is, until it decides nothing more. It returns the snapshot then.
func settle(q Question) (Outcome, cluster.Snapshot) {
	s := q.Snapshot
	out := Outcome{Problems: q.Policy.Problems(&s)}
	q.Options.Epoch, q.Options.Estimate = s.Slots.Record.Epoch, true // the forecast is for the epoch in force
	core := elector.New(q.Options)
	wd := watchdog.New(watchdog.Options{Takeover: time.Hour, StrikeResetAfter: 1000 * time.Hour, LeaseWait: time.Second})
	now := time.Hour
	for range maxSteps {
		found := wd.Observe(s, now)
		in := elector.Input{
			Snapshot: s, Policy: q.Policy, Now: now, Wall: q.Wall, Exclusions: found.Exclusions, Others: q.Others,
			Placement: q.Placement,
		}
		if question, wanted := core.Question(in); wanted && q.Ask != nil {
			in.Answer = q.Ask(question)
		}
		out.Last = core.Decide(in)
		switch d := out.Last; {
		case d.Elect != nil:
			out.Steps = append(out.Steps, *d.Elect)
			s = s.AfterElection(*d.Elect)
		case d.Control != nil:
			s.Control.Record = *d.Control
		case d.Awaiting != "", d.Note != "" && d.Wake > now && d.AwaitsRetry(s):
			now = d.Wake
		default:
			out.Leader, out.Blocked = leader(s), out.Last.Blocked.Sentence(now, q.Wall)
			return out, s
		}
	}
	return out, s
}

// applyChange returns the changed snapshot. It does not modify the one of q. Only the elector measures how long a
// strike counts, so what follows from the times in the records is an estimate.
func (q Question) applyChange() cluster.Snapshot {
	s, c := q.Snapshot, q.Change
	s.Elected.Record.Exclusions = q.cleared()
	gone := func(m cluster.Member) bool {
		return slices.Contains(c.Without, m.ID) || slices.Contains(c.WithoutSites, m.Node.Record.Site)
	}
	s = s.Without(gone)
	s.Elector, s.HolderRead, s.SelfLost = true, true, false
	if len(s.Members) > 0 {
		s.Self = s.Members[0].Incarnation
	}
	control := s.Control.Record.Clone()
	for i, id := range slices.Concat(c.Cordon, c.Drain) {
		control.Cordons = append(control.Cordons, cluster.Cordon{Request: control.Next(hypothesis), Node: id,
			Drain: i >= len(c.Cordon)})
	}
	if len(control.Cordons) > 0 && s.Control.Err == nil {
		s.Control.Exists, s.Control.Record = true, control
	}
	return s
}

// cleared returns the exclusions, with those marked whose time is over, and without those of a leader that has led for
// long enough.
func (q Question) cleared() []cluster.Exclusion {
	s, since := &q.Snapshot, q.Snapshot.Current.Record.Time
	forgiven := s.Ready() && q.StrikeResetAfter > 0 && !since.IsZero() && q.Wall.Sub(since) >= q.StrikeResetAfter
	list := cluster.MarkExpired(s.Elected.Record.Exclusions, func(x cluster.Exclusion) bool {
		return !x.Time.IsZero() && q.Wall.Sub(x.Time) >= time.Duration(x.For)
	})
	return slices.DeleteFunc(list, func(x cluster.Exclusion) bool { return forgiven && x.Node == s.Elected.Record.Node })
}

// hypothesis is the request of a hypothetical cordon.
var hypothesis = cluster.Request{By: "whatif"}

// leader returns the member that holds leadership or is about to.
func leader(s cluster.Snapshot) cluster.Member {
	if !s.Elected.Readable() || s.Ended() {
		return cluster.Member{}
	}
	m, _ := s.Member(s.Elected.Record.Incarnation)
	return m
}

// LeaderOf returns the node that leads or is elected, with its site; empty if there is none.
func LeaderOf(s cluster.Snapshot) (node, site string) {
	if s.Current.Readable() {
		return s.Current.Record.Node, s.Current.Record.Site
	}
	if m := leader(s); m.Name != "" {
		return s.Elected.Record.Node, s.Elected.Record.Site
	}
	return "", ""
}

// Loss is the loss of one node or site, and its outcome for each of [Question.Leaders].
type Loss struct {
	Node, Site string // one of them is set
	Outcomes   []Outcome
}

// Losses returns the forecasts for the loss of each node and of each site.
func Losses(q Question) []Loss {
	all := possibleLosses(q.Snapshot)
	for i := range all {
		lost := q
		lost.Change, lost.Slots = all[i].addTo(q.Change), slices.Clone(q.Slots)
		for j, slot := range q.Slots {
			lost.Slots[j].Change = all[i].addTo(slot.Change)
		}
		all[i].Outcomes = lost.Outcomes()
	}
	return all
}

// possibleLosses returns the loss of each node and of each site.
func possibleLosses(s cluster.Snapshot) []Loss {
	var all []Loss
	var sites []string
	members := slices.SortedStableFunc(slices.Values(s.Members), func(a, b cluster.Member) int {
		return cluster.CompareNodes(a.ID, b.ID)
	})
	for _, m := range members {
		if m.Superseded {
			continue
		}
		all = append(all, Loss{Node: m.ID})
		if site := m.Node.Record.Site; !slices.Contains(sites, site) {
			sites = append(sites, site)
		}
	}
	slices.Sort(sites)
	for _, site := range sites {
		all = append(all, Loss{Site: site})
	}
	return all
}

// addTo returns the change together with the loss.
func (l Loss) addTo(c Change) Change {
	if l.Node != "" {
		c.Without = append(slices.Clone(c.Without), l.Node)
	} else {
		c.WithoutSites = append(slices.Clone(c.WithoutSites), l.Site)
	}
	return c
}
