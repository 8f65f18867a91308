package status

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"zkelectd/internal/cluster"
)

// SlotGroup is a whole group with slots, as read from ZooKeeper.
type SlotGroup struct {
	// Name is the name of the group.
	Name string `json:"-"`
	Root string `json:"root"`
	// Count is how many slots there are, PerNode how many of them one node can lead. Epoch grows when they change.
	Count   int      `json:"count"`
	PerNode int      `json:"per_node"`
	Epoch   int64    `json:"epoch"`
	Slots   []Slot   `json:"slots"`
	Elector string   `json:"elector,omitempty"`
	Policy  string   `json:"policy,omitempty"`
	Members []Member `json:"members"`
	// Expected and Absent are those of [Group].
	Expected int            `json:"members_expected"`
	Absent   []AbsentMember `json:"absent,omitempty"`
	Requests []Request      `json:"requests,omitempty"`
	OpenTree bool           `json:"open_tree,omitempty"`
	Problems []string       `json:"problems,omitempty"`

	unreadable bool     // the record of slots cannot be read, so the slots are not known
	Passing    []string `json:"passing_problems,omitempty"`
}

// Slot is one slot of a group. Its fields are those of [Group].
type Slot struct {
	Slot       string              `json:"slot"`
	State      string              `json:"state"`
	Leader     string              `json:"leader,omitempty"`
	Site       string              `json:"site,omitempty"`
	Term       int64               `json:"term,omitempty"`
	Since      *time.Time          `json:"since,omitempty"`
	Cause      string              `json:"cause,omitempty"`
	Reason     string              `json:"reason,omitempty"`
	Next       string              `json:"next,omitempty"`
	Heir       string              `json:"heir,omitempty"`
	HeirSite   string              `json:"heir_site,omitempty"`
	Waiting    string              `json:"waiting,omitempty"`
	Exclusions []cluster.Exclusion `json:"exclusions,omitempty"`
	// NoLeader is why the slot has no leader, and none can be elected; empty otherwise.
	NoLeader string `json:"no_leader,omitempty"`
	// Blocked says who would lead instead, and what holds that member back; empty if nothing does.
	Blocked string `json:"preemption_blocked,omitempty"`
}

// OfSlots returns the view of a group with slots. shared has what the slots share: the members, the policy, the requests and the
// record of slots; snapshots has one for each slot, in their order.
func OfSlots(name, root string, shared cluster.Snapshot, snapshots []cluster.Snapshot) SlotGroup {
	rec := shared.Slots.Record
	g := SlotGroup{Name: name, Root: root, Count: rec.Count, PerNode: rec.PerNode, Epoch: rec.Epoch, Slots: []Slot{}}
	viewer := NewViewer(name, root)
	whole := viewer.Group(withoutLeadership(shared))
	g.Elector, g.Policy, g.Requests, g.OpenTree = whole.Elector, whole.Policy, whole.Requests, whole.OpenTree
	g.Absent, g.Expected = whole.Absent, whole.Expected
	g.Passing = whole.Passing
	g.addProblems(whole.Problems)
	g.describeDamage(shared.Slots)
	g.Members = whole.Members
	for _, s := range snapshots {
		g.addSlot(viewer.Group(s))
	}
	for i := range g.Members {
		m := &g.Members[i]
		m.Spare = len(m.Leads) == 0 && m.IsEligible() && !g.unreadable
	}
	return g
}

// describeDamage adds a record of slots that cannot be read to the problems. That it has not been written yet is not damage.
func (g *SlotGroup) describeDamage(read cluster.Stored[cluster.Slots]) {
	switch err := read.Err; {
	case err == nil:
	case errors.Is(err, cluster.ErrNoSlots):
		g.addProblems([]string{err.Error()})
	case read.Newer() != nil:
		g.unreadable = true
		g.addProblems([]string{err.Error() + ": until then no slot gets another leader; leaders keep working"})
	default:
		g.unreadable = true
		g.addProblems([]string{err.Error() + ": the elector writes it again; if no daemon runs, start one"})
	}
}

// withoutLeadership returns what the slots of a group share.
func withoutLeadership(s cluster.Snapshot) cluster.Snapshot {
	s.Elected, s.Fence, s.Current = cluster.Stored[cluster.Elected]{}, cluster.Stored[cluster.Fence]{}, cluster.Stored[cluster.Current]{}
	s.Slots, s.Slot, s.Control.Record = cluster.Stored[cluster.Slots]{}, "", s.Control.Record.Whole()
	return s
}

func (g *SlotGroup) addProblems(found []string) {
	for _, p := range found {
		if !slices.Contains(g.Problems, p) {
			g.Problems = append(g.Problems, p)
		}
	}
}

func (g *SlotGroup) addSlot(of Group) {
	s := Slot{
		Slot: of.Slot, State: of.State, Leader: of.Leader, Site: of.Site, Term: of.Term, Since: of.Since, Cause: of.Cause, Reason: of.Reason,
		Next: of.Next, Heir: of.Heir, HeirSite: of.HeirSite, Waiting: of.Waiting, Exclusions: of.Exclusions,
	}
	g.Slots = append(g.Slots, s)
	g.addProblems(of.Problems)
	for _, m := range of.Members {
		for i := range g.Members {
			own := &g.Members[i]
			if own.Incarnation != m.Incarnation {
				continue
			}
			for _, role := range m.Roles {
				if role != "elector" {
					own.Leads = append(own.Leads, s.Slot)
				}
				if !slices.Contains(own.Roles, role) {
					own.Roles = append(own.Roles, role)
				}
			}
			if own.IsEligible() && !m.IsEligible() {
				own.Eligible = "not in slot " + s.Slot + ": " + m.Eligible
			}
		}
	}
}

// Spares returns the members that can lead, but lead no slot.
func (g SlotGroup) Spares() (nodes []string) {
	for _, m := range g.Members {
		if m.Spare {
			nodes = append(nodes, m.Node)
		}
	}
	return nodes
}

// Table returns the group as text for a terminal.
func (g SlotGroup) Table() string { return g.table(false) }

// WideTable is Table with all columns.
func (g SlotGroup) WideTable() string { return g.table(true) }

func (g SlotGroup) table(wide bool) string {
	var b strings.Builder
	g.writeSummary(&b)
	fmt.Fprintln(&b)
	g.writeSlots(&b, wide)
	fmt.Fprintln(&b)
	g.writeMembers(&b, wide)
	return b.String()
}

func (g SlotGroup) writeSummary(b *strings.Builder) {
	r := rows{b}
	r.add("Group", g.Root)
	ready := 0
	for _, s := range g.Slots {
		if s.State == string(cluster.CurrentReady) {
			ready++
		}
	}
	if g.unreadable {
		r.add("Slots", "not known, see Problem")
	} else {
		r.add("Slots", fmt.Sprintf("%s; %d of %d have a READY leader; epoch %d", cluster.SlotSize{Count: g.Count, PerNode: g.PerNode}, ready, g.Count, g.Epoch))
		r.add("Spares", cmp.Or(strings.Join(g.Spares(), ", "), "none: every member that can lead leads a slot"))
	}
	r.add("Members", membersLine(g.Name, len(g.Members), g.Expected, g.Absent))
	r.addPolicy(g.Policy, g.OpenTree, g.Requests)
	for _, s := range g.Slots {
		r.addExclusions(g.Name, " in slot "+s.Slot, s.Exclusions)
	}
	r.addAll("Problem", g.Problems)
	for _, s := range g.Slots {
		if s.Blocked != "" {
			r.add("Blocked", fmt.Sprintf("slot %s: %s", s.Slot, s.Blocked))
		}
		if s.NoLeader != "" {
			r.add("Problem", fmt.Sprintf("slot %s has no leader: %s", s.Slot, s.NoLeader))
		}
	}
}

func (g SlotGroup) writeSlots(b *strings.Builder, wide bool) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	heir := func(string) string { return "" }
	if wide {
		heir = func(node string) string { return Printable(cmp.Or(node, "-")) + "\t" }
		fmt.Fprintln(t, "SLOT\tLEADER\tSITE\tTERM\tSINCE\tHEIR\tWHY")
	} else {
		fmt.Fprintln(t, "SLOT\tLEADER\tSITE\tTERM\tSINCE\tWHY")
	}
	for _, s := range g.Slots {
		leader, when, why := cmp.Or(s.Leader, "none"), "-", ""
		switch s.State {
		case string(cluster.CurrentReady), StateNone:
		case string(cluster.CurrentProgress):
			leader += " (taking over)"
		default:
			leader += " (elected)"
		}
		if s.Since != nil {
			when = since(s.Since)
		}
		if s.Reason != "" {
			why = s.Cause + ": " + s.Reason
		}
		for name, text := range map[string]string{"waits: ": s.Waiting, "next: ": s.Next} {
			if text != "" {
				why = strings.TrimPrefix(why+"; "+name+text, "; ")
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s%s\n", Printable(s.Slot), Printable(leader), Printable(cmp.Or(s.Site, "-")), s.Term, when, heir(s.Heir), Printable(why))
	}
	t.Flush()
	if len(g.Slots) == 0 && !g.unreadable {
		fmt.Fprintln(b, "there are no slots yet")
	}
}

func (g SlotGroup) writeMembers(b *strings.Builder, wide bool) {
	t := memberTable{wide: wide, members: g.Members, absent: g.Absent}
	t.leads = func(m Member) string {
		of := "-"
		if !g.unreadable {
			of = fmt.Sprintf("%d of %d", len(m.Leads), g.PerNode)
		}
		return "\t" + of + "\t" + cmp.Or(strings.Join(m.Leads, ","), "-")
	}
	t.write(b)
}
