package cluster

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Roster is the record of roster: the nodes that are members of the group or have been. It is for people; nothing is
// decided by it.
type Roster struct {
	Header
	// Nodes are in the order of their ids.
	Nodes []RosterNode `json:"nodes"`
}

// RosterNode is a node that is a member, or has been one.
type RosterNode struct {
	ID   string `json:"id"`
	Site string `json:"site"`
	// FirstSeen is when an elector saw it as a member for the first time, by that elector's clock.
	FirstSeen time.Time `json:"first_seen"`
	// Left says when and how it left; nil while it is a member.
	Left *Left `json:"left,omitempty"`
	// ForgetAfter is how long after that it is dropped, as the node has said; 0 for never.
	ForgetAfter Duration `json:"forget_after,omitempty"`
}

// Left says when and how a node ceased to be a member.
type Left struct {
	How LeftHow `json:"how"`
	// Time is by the clock of the elector, or of the node itself if it left on purpose. It is zero if no elector has
	// seen it leave.
	Time time.Time `json:"time,omitzero"`
	// Incarnation is that of a node which left on purpose. It writes this before its registration ends.
	Incarnation string `json:"incarnation,omitempty"`
}

// LeftHow is how a node ceased to be a member.
type LeftHow string

// The ways in which a node leaves. Only a node that leaves on purpose can say so: any other end is a loss.
const (
	LeftLost    LeftHow = "lost"
	LeftStopped LeftHow = "stopped" // its daemon was stopped
	LeftRemoved LeftHow = "removed" // the group was removed from its configuration
)

// The limits of the roster: nodes that have left, and bytes of all nodes and of an id or a site. The nodes that left
// first are dropped first.
const (
	MaxLeft       = 1000
	maxRosterSize = MaxRecord / 2
	maxRosterName = 255
)

// Update returns the roster after an elector has seen these members, and reports whether it has changed. The passing of
// time alone only drops nodes that are to be forgotten.
func (r Roster) Update(members []Member, now time.Time) (next Roster, changed bool) {
	present, now := presentNodes(members), now.UTC().Truncate(time.Second)
	next = r
	next.Nodes = make([]RosterNode, 0, len(r.Nodes)+len(present))
	known := make(map[string]bool, len(r.Nodes))
	for _, n := range r.Nodes {
		if rosterName(n.ID) && !known[n.ID] { // else forged
			known[n.ID] = true
			if n = n.update(present[n.ID], now); n.forgetAt().IsZero() || now.Before(n.forgetAt()) {
				next.Nodes = append(next.Nodes, n)
			}
		}
	}
	for id, p := range present {
		if rosterName(id) && !known[id] {
			next.Nodes = append(next.Nodes, RosterNode{ID: id, Site: p.site, FirstSeen: now, ForgetAfter: p.forgetAfter})
		}
	}
	if slices.EqualFunc(r.Nodes, next.Nodes, RosterNode.equal) { // also one that is out of bounds: only a forged one is
		return r, false
	}
	next.bound()
	return next, !slices.EqualFunc(r.Nodes, next.Nodes, RosterNode.equal)
}

// forgetAt returns when the node is to be dropped; zero for never.
func (n RosterNode) forgetAt() time.Time {
	if n.Left == nil || n.ForgetAfter <= 0 || n.Left.Time.IsZero() {
		return time.Time{}
	}
	after := min(time.Duration(n.ForgetAfter), MaxRequestTime)            // also if it is forged
	return n.Left.Time.Add(after + time.Second - 1).Truncate(time.Second) // as Update looks
}

// NextForgotten returns when [Roster.Update] will drop a node although no member changes; zero for never.
func (r Roster) NextForgotten() (next time.Time) {
	for _, n := range r.Nodes {
		if at := n.forgetAt(); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// Leaving returns the roster in which the node itself says that it leaves on purpose.
func (r Roster) Leaving(id, site string, left Left) Roster {
	left.Time = left.Time.UTC().Truncate(time.Second)
	next := r
	next.Nodes = slices.Clone(r.Nodes)
	i := slices.IndexFunc(next.Nodes, func(n RosterNode) bool { return n.ID == id })
	if i < 0 {
		i = len(next.Nodes)
		next.Nodes = append(next.Nodes, RosterNode{ID: id, Site: clipName(site), FirstSeen: left.Time})
	}
	next.Nodes[i].Left = &left
	next.bound()
	return next
}

// Without returns the roster without the nodes that drop names.
func (r Roster) Without(drop func(RosterNode) bool) Roster {
	r.Nodes = slices.DeleteFunc(slices.Clone(r.Nodes), drop)
	return r
}

// update returns the node after an elector has looked. p is nil if the node is not registered.
func (n RosterNode) update(p *presentNode, now time.Time) RosterNode {
	if p == nil {
		if n.Left == nil {
			n.Left = &Left{How: LeftLost, Time: now}
		}
		return n
	}
	if n.Left != nil && !p.only(n.Left.Incarnation) {
		n.Left = nil // it is back
	}
	if p.known {
		n.Site, n.ForgetAfter = p.site, p.forgetAfter
	}
	return n
}

func (n RosterNode) equal(m RosterNode) bool {
	if n.ID != m.ID || n.Site != m.Site || n.ForgetAfter != m.ForgetAfter || !n.FirstSeen.Equal(m.FirstSeen) ||
		(n.Left == nil) != (m.Left == nil) {
		return false
	}
	return n.Left == nil || n.Left.How == m.Left.How && n.Left.Incarnation == m.Left.Incarnation &&
		n.Left.Time.Equal(m.Left.Time)
}

// presentNode is a node that is registered.
type presentNode struct {
	site         string
	forgetAfter  Duration
	known        bool // its record could be read
	incarnations []string
}

// only reports whether the node has no other incarnation.
func (p *presentNode) only(incarnation string) bool {
	return !slices.ContainsFunc(p.incarnations, func(own string) bool { return own != incarnation })
}

// presentNodes returns the registered nodes by their ids.
func presentNodes(members []Member) map[string]*presentNode {
	all := make(map[string]*presentNode, len(members))
	for _, m := range members {
		p := all[m.ID]
		if p == nil {
			p = &presentNode{site: clipName(m.Node.Record.Site),
				forgetAfter: max(0, min(m.Node.Record.ForgetAfter, Duration(MaxRequestTime))), known: m.Node.Readable()}
			all[m.ID] = p
		}
		p.incarnations = append(p.incarnations, m.Name)
	}
	return all
}

// bound drops the nodes beyond the limits, and restores the order.
func (r *Roster) bound() {
	// Members come first, then those that left last.
	slices.SortFunc(r.Nodes, func(a, b RosterNode) int {
		if a.Left == nil || b.Left == nil {
			return cmp.Or(cmp.Compare(boolInt(a.Left != nil), boolInt(b.Left != nil)), cmp.Compare(a.ID, b.ID))
		}
		return cmp.Or(b.Left.Time.Compare(a.Left.Time), cmp.Compare(a.ID, b.ID))
	})
	left, size := 0, 0
	for i, n := range r.Nodes {
		size += len(marshal(n)) + 1
		if n.Left != nil {
			left++
		}
		if left > MaxLeft || size > maxRosterSize {
			r.Nodes = r.Nodes[:i]
			break
		}
	}
	slices.SortFunc(r.Nodes, func(a, b RosterNode) int { return cmp.Compare(a.ID, b.ID) })
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// rosterName reports whether an id can be remembered. Others are forged: no configuration permits them.
func rosterName(id string) bool { return id != "" && len(id) <= maxRosterName && utf8.ValidString(id) }

// clipName returns a name without what no configuration permits.
func clipName(name string) string {
	return strings.ToValidUTF8(name[:min(len(name), maxRosterName)], "")
}

// Absent returns the nodes of the roster that are not registered, in the order of their ids, and how many members are
// expected: all that are registered, and the absent ones except those that were removed.
func (s *Snapshot) Absent() (absent []RosterNode, expected int) {
	present := presentNodes(s.Members)
	expected = len(present)
	for _, n := range s.Roster.Record.Nodes {
		if present[n.ID] != nil {
			continue
		}
		if n.Left == nil {
			n.Left = &Left{How: LeftLost}
		}
		absent = append(absent, n)
		if n.Left.How != LeftRemoved {
			expected++
		}
	}
	return absent, expected
}

// EncodeRoster encodes the roster, compressed if it is large.
func EncodeRoster(r *Roster) []byte { return compressLarge(Encode(r)) }

// ReadRoster decodes what was read from the znode at path.
func ReadRoster(path string, data []byte, stat Stat, exists bool) Stored[Roster] {
	if exists {
		plain, err := decompress(path, data)
		if err != nil {
			return Stored[Roster]{Exists: true, Stat: stat, Err: err}
		}
		data = plain
	}
	return ReadStored[Roster](path, data, stat, exists)
}

// RosterTx writes the roster as it follows from what was read. self is the incarnation of an elector, empty for others.
// It fails with ErrBadVersion or ErrNodeExists if the roster has changed since.
func (p Paths) RosterTx(self string, read Stored[Roster], next Roster) []Op {
	return p.byElector(self, writeOp(p.Roster(), read, EncodeRoster(&next)))
}
