package status

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"zkelectd/internal/cluster"
)

// Table returns the group as text for people.
func (g Group) Table() string {
	var b strings.Builder
	g.writeSummary(&b)
	fmt.Fprintln(&b)
	g.writeMembers(&b)
	return b.String()
}

// writeSummary writes who leads and why, and what else holds for the whole group.
func (g Group) writeSummary(b *strings.Builder) {
	fmt.Fprintf(b, "Group    %s\n", g.Root)
	switch g.State {
	case StateNone:
		fmt.Fprintln(b, "Leader   none")
	case string(cluster.CurrentReady):
		fmt.Fprintf(b, "Leader   %s (site %s), term %d, ready since %s\n", Plain(g.Leader), Plain(g.Site), g.Term, since(g.Since))
	case string(cluster.CurrentProgress):
		fmt.Fprintf(b, "Leader   %s (site %s), term %d, taking over since %s\n", Plain(g.Leader), Plain(g.Site), g.Term, since(g.Since))
	default:
		fmt.Fprintf(b, "Leader   %s (site %s) elected, term %d, has not taken over yet\n", Plain(g.Leader), Plain(g.Site), g.Term)
	}
	if g.LeaseRemaining > 0 {
		fmt.Fprintf(b, "Lease    %s left\n", time.Duration(g.LeaseRemaining).Round(10*time.Millisecond))
	}
	if g.Reason != "" {
		fmt.Fprintf(b, "Why      %s: %s\n", Plain(g.Cause), Plain(g.Reason))
	}
	if g.Waiting != "" {
		fmt.Fprintf(b, "Waiting  %s\n", Plain(g.Waiting))
	}
	if g.Next != "" {
		fmt.Fprintf(b, "Next     %s\n", Plain(g.Next))
	}
	if g.Policy != "" {
		fmt.Fprintf(b, "Policy   %s\n", Plain(g.Policy))
	}
	if g.OpenTree {
		fmt.Fprintln(b, "Open     anyone who can reach ZooKeeper can stop this group, or lock it out: see zookeeper.acl in docs/security.md")
	}
	for _, o := range g.Requests {
		fmt.Fprintf(b, "%-8s %s\n", "Request", Plain(o.String()))
	}
	for _, x := range g.Exclusions {
		if !x.Served {
			fmt.Fprintf(b, "Excluded %s, strike %d, for %s: %s ('zkelectd clear-strikes %s' clears it)\n", Plain(x.Node), x.Strikes, x.For, Plain(x.Reason), Plain(x.Node))
		}
	}
	for _, p := range g.Problems {
		fmt.Fprintf(b, "Problem  %s\n", Plain(p))
	}
}

func (g Group) writeMembers(b *strings.Builder) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tSITE\tPRIORITY\tROLE\tHEALTH\tHOST\tPID\tVERDICT OF THE LAST ELECTION")
	for _, m := range g.Members {
		role := strings.Join(m.Roles, ", ")
		if role == "" {
			role = "standby"
		}
		why := m.Why
		if why == "" {
			why = "joined since"
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t%d\t%s\n", Plain(m.Node), Plain(m.Site), m.Priority, role, Plain(m.Health), Plain(m.Host), m.PID, Plain(why))
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
