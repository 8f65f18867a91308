package status

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"zkelectd/internal/cluster"
)

// Table returns the group as text for a terminal.
func (g Group) Table() string {
	var b strings.Builder
	g.writeSummary(&b)
	fmt.Fprintln(&b)
	g.writeMembers(&b)
	return b.String()
}

// writeSummary writes what concerns the whole group: who leads and why, requests, exclusions and problems.
func (g Group) writeSummary(b *strings.Builder) {
	fmt.Fprintf(b, "Group    %s\n", g.Root)
	g.writeLeader(b)
	row := func(name, text string) {
		if text != "" {
			fmt.Fprintf(b, "%-8s %s\n", name, Printable(text))
		}
	}
	if g.Reason != "" {
		row("Why", g.Cause+": "+g.Reason)
	}
	row("Waiting", g.Waiting)
	row("Next", g.Next)
	row("Policy", g.Policy)
	if g.OpenTree {
		row("Open", "anyone who can reach ZooKeeper can stop this group, or lock it out: see zookeeper.acl in docs/security.md")
	}
	for _, r := range g.Requests {
		row("Request", r.String())
	}
	for _, x := range g.Exclusions {
		if !x.Expired {
			row("Excluded", fmt.Sprintf("%s, strike %d, for %s: %s ('zkelectd clear-strikes %[1]s' clears it)", x.Node, x.Strikes, x.For, x.Reason))
		}
	}
	for _, p := range g.Problems {
		row("Problem", p)
	}
}

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
}

func (g Group) writeMembers(b *strings.Builder) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tSITE\tPRIORITY\tROLE\tHEALTH\tHOST\tPID\tVERDICT OF THE LAST ELECTION")
	for _, m := range g.Members {
		role, why := cmp.Or(strings.Join(m.Roles, ", "), "standby"), cmp.Or(m.Why, "joined since")
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t%d\t%s\n", Printable(m.Node), Printable(m.Site), m.Priority, role, Printable(m.Health), Printable(m.Host), m.PID, Printable(why))
	}
	t.Flush()
	if len(g.Members) == 0 {
		fmt.Fprintln(b, "no daemon is registered")
	}
}

func since(t *time.Time) string {
	if t == nil {
		return "an unknown time"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}
