package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"zkelectd/internal/cluster"
)

// Table returns the group as text for a terminal, narrow enough for most.
func (g Group) Table() string { return g.table(false) }

// WideTable is Table with all columns.
func (g Group) WideTable() string { return g.table(true) }

func (g Group) table(wide bool) string {
	var b strings.Builder
	g.writeSummary(&b)
	fmt.Fprintln(&b)
	g.writeMembers(&b, wide)
	return b.String()
}

// rows are lines with a label each.
type rows struct{ b *strings.Builder }

// add adds a line, unless it would be empty.
func (r rows) add(name, text string) {
	if text != "" {
		fmt.Fprintf(r.b, "%-8s %s\n", name, Printable(text))
	}
}

// writeSummary writes what concerns the whole group: who leads and why, requests, exclusions and problems.
func (g Group) writeSummary(b *strings.Builder) {
	fmt.Fprintf(b, "Group    %s\n", g.Root)
	if g.Slot != "" {
		fmt.Fprintf(b, "Slot     %s of %d, counted from 0\n", g.Slot, g.Slots)
	}
	g.writeLeader(b)
	r := rows{b}
	if g.Reason != "" {
		r.add("Why", g.Cause+": "+g.Reason)
	}
	r.add("Waiting", g.Waiting)
	for _, attempt := range g.Fencing {
		r.add("Fencing", attempt.String())
	}
	r.add("Failsafe", g.Failsafe.text())
	r.add("Next", g.Next)
	r.add("Heir", g.heirText())
	r.add("Blocked", g.Blocked)
	r.add("Members", membersLine(g.Name, len(g.Members), g.Expected, g.Absent))
	r.add("Policy", g.Policy)
	if g.OpenTree {
		r.add("Open", openTree)
	}
	for _, request := range g.Requests {
		r.add("Request", request.String())
	}
	for _, x := range g.Exclusions {
		if !x.Expired {
			r.add("Excluded", fmt.Sprintf("%s, strike %d, for %s: %s (%s clears it)", x.Node, x.Strikes, x.For, x.Reason,
				cluster.InGroup("'zkelectd clear-strikes %s'", g.Name, x.Node))) // a slot of its own has no such command
		}
	}
	for _, problem := range g.Problems {
		r.add("Problem", problem)
	}
}

const openTree = "anyone who can reach ZooKeeper can stop this group, or lock it out: see zookeeper.acl in docs/security.md"

func (g Group) writeLeader(b *strings.Builder) {
	switch g.State {
	case StateNone:
		fmt.Fprintln(b, "Leader   none")
	case string(cluster.CurrentReady):
		fmt.Fprintf(b, "Leader   %s (site %s), term %d, ready since %s\n", Printable(g.Leader), Printable(g.Site), g.Term, since(g.Since))
	case string(cluster.CurrentProgress):
		fmt.Fprintf(b, "Leader   %s (site %s), term %d, taking over since %s\n", Printable(g.Leader), Printable(g.Site), g.Term, since(g.Since))
	default:
		fmt.Fprintf(b, "Leader   %s (site %s) elected, term %d, has not taken over yet\n", Printable(g.Leader), Printable(g.Site), g.Term)
	}
	if g.LeaseRemaining > 0 {
		fmt.Fprintf(b, "Lease    %s left\n", time.Duration(g.LeaseRemaining).Round(10*time.Millisecond))
	}
	if g.LeaseUnconfirmed != "" {
		fmt.Fprintf(b, "Lease    not confirmed: %s\n", Printable(g.LeaseUnconfirmed))
	}
}

func (g Group) writeMembers(b *strings.Builder, wide bool) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "NODE\tSITE\tPRIORITY\tROLE\tHEALTH\tELIGIBLE")
	if wide {
		fmt.Fprint(t, "\tHOST\tPID\tVERDICT OF THE LAST ELECTION")
	}
	fmt.Fprintln(t)
	for _, m := range g.Members {
		health, eligible := m.columns(wide)
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s", Printable(m.Node), Printable(m.Site), m.Priority, m.role(), health, eligible)
		if wide {
			fmt.Fprintf(t, "\t%s\t%d\t%s", Printable(m.Host), m.PID, Printable(cmp.Or(m.Reason, "joined since")))
		}
		fmt.Fprintln(t)
	}
	now := time.Now()
	for _, m := range g.Absent {
		fmt.Fprintf(t, "%s\t%s\t-\t%s\t-\t-\n", Printable(m.Node), Printable(m.Site), Printable(m.StateAt(now)))
	}
	t.Flush()
	for _, m := range g.Members {
		m.writeHealth(b, wide)
	}
	if len(g.Members) == 0 {
		fmt.Fprintln(b, "no daemon is registered")
	}
}

// role returns the member's roles as people read them.
func (m Member) role() string {
	roles := m.Roles
	if m.Heir {
		roles = append(slices.Clone(roles), "heir")
	}
	return cmp.Or(strings.Join(roles, ", "), "standby")
}

// columns returns the member's health and whether it is eligible; unless wide, without the details that other lines have.
func (m Member) columns(wide bool) (health, eligible string) {
	health, eligible = m.Health, m.Eligible
	if !m.IsEligible() {
		eligible = "no: " + eligible
	}
	if !wide {
		health, eligible = brief(health), "no: "+brief(m.Eligible)
		if m.IsEligible() {
			eligible = m.Eligible
		}
	}
	return Printable(health), Printable(eligible)
}

// brief returns a reason without its details.
func brief(reason string) string {
	for _, detail := range []string{": ", " by ", " for "} {
		reason, _, _ = strings.Cut(reason, detail)
	}
	return reason
}

// writeHealth writes what the health probe reports, below a table that does not have it.
func (m Member) writeHealth(b *strings.Builder, wide bool) {
	if !wide && m.Health != healthy {
		fmt.Fprintf(b, "%s is %s\n", Printable(m.Node), Printable(m.Health))
	}
}

func since(t *time.Time) string {
	if t == nil {
		return "an unknown time"
	}
	return fmt.Sprintf("%s, %s ago", t.Local().Format("2006-01-02 15:04:05 MST"), age(time.Since(*t)))
}
