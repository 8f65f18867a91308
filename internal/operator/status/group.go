package status

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// States of a group besides those of the current record.
const (
	StateWaiting = "WAITING"
	StateNone    = "NONE"
)

// Viewer derives views of one group from its snapshots. It compiles the policy only when that changes, and is safe for
// concurrent use.
type Viewer struct {
	name, root string
	policies   policy.Cache
}

// NewViewer returns a viewer for the group below root. name is the name of the group or of one of its slots.
func NewViewer(name, root string) *Viewer { return &Viewer{name: cluster.GroupOf(name), root: root} }

// Of returns the view of a group from a single snapshot.
func Of(name, root string, s cluster.Snapshot) Group { return NewViewer(name, root).Group(s) }

// Group returns the view of the group from a snapshot that includes the members.
func (v *Viewer) Group(s cluster.Snapshot) Group {
	g := Group{Name: v.name, Root: v.root, Slot: s.Slot, Slots: s.Slots.Record.Count, State: StateNone, Members: []Member{}}
	g.describeLeadership(s)
	g.describeHeir(s)
	inForce := ""
	if s.Policy.Readable() {
		inForce = s.Policy.Record.Rules.Digest()
	}
	for i, m := range s.Members {
		if i == 0 {
			g.Elector = m.ID
		}
		member := viewMember(s, m, i == 0, inForce)
		member.Heir = g.Heir != "" && isHeir(s, m)
		g.Members = append(g.Members, member)
		g.OpenTree = g.OpenTree || m.Node.Record.OpenTree
	}
	slices.SortStableFunc(g.Members, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Site, b.Site), cluster.CompareNodes(a.Node, b.Node))
	})
	g.Absent, g.Expected = absent(s)
	g.Requests = requests(s)
	g.describePolicy(s, &v.policies)
	g.describeDamage(s)
	g.describeDroppedSchedules(s)
	g.describeOldSettings(s)
	g.describeHosts(s)
	g.describeFailsafe(s)
	return g
}

// describeLeadership sets who leads, since when and why.
func (g *Group) describeLeadership(s cluster.Snapshot) {
	if s.Elected.Readable() {
		e := s.Elected.Record
		g.Cause, g.Reason, g.Exclusions = string(e.Cause), e.Reason, exclusions(s)
		if _, alive := s.Member(e.Incarnation); alive && !s.Ended() {
			g.State, g.Leader, g.Site, g.Term, g.Since = StateWaiting, e.Node, e.Site, e.Term, timeOrNil(e.Time)
		}
	}
	if !s.Current.Readable() {
		return
	}
	c := s.Current.Record
	g.State, g.Leader, g.Site, g.Term, g.Since = string(c.State), c.Node, c.Site, c.Term, timeOrNil(c.Time)
	g.API, g.APIHost, g.Waiting, g.Fencing = c.API, apiHost(s), cmp.Or(s.Waiting(), queued(s)), s.Fenced()
	if e := s.Elected; e.Readable() && e.Record.Term != c.Term {
		// A handover is in progress, or was while this was read: the reason is not this leader's.
		g.Next = fmt.Sprintf("%s, term %d (%s: %s)", e.Record.Node, e.Record.Term, e.Record.Cause, e.Record.Reason)
		g.Cause, g.Reason = "", ""
	}
}

// queued returns why the takeover waits, if the host starts the work of other groups first; else "".
func queued(s cluster.Snapshot) string {
	for _, m := range s.Members {
		if m.Name == s.Current.Record.Incarnation && s.Current.Record.State == cluster.CurrentProgress && m.Node.Record.Queued {
			return m.ID + " starts the work of other groups first"
		}
	}
	return ""
}

// apiHost returns the leader's host if its registration confirms the API address, or "".
func apiHost(s cluster.Snapshot) string {
	c := s.Current
	m, ok := s.Member(c.Record.Incarnation)
	if !ok || !m.Node.Readable() || m.Node.Stat.Owner != c.Stat.Owner || m.Node.Record.API != c.Record.API {
		return ""
	}
	return m.Node.Record.Host
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
