package status

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"zkelectd/internal/cluster"
)

// Table shows the group to people.
func (g Group) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Group    %s\n", g.Root)
	switch g.State {
	case StateNone:
		fmt.Fprintln(&b, "Leader   none")
	case string(cluster.CurrentReady):
		fmt.Fprintf(&b, "Leader   %s (site %s), term %d, ready since %s\n", quoted(g.Leader), quoted(g.Site), g.Term, since(g.Since))
	case string(cluster.CurrentProgress):
		fmt.Fprintf(&b, "Leader   %s (site %s), term %d, taking over since %s\n", quoted(g.Leader), quoted(g.Site), g.Term, since(g.Since))
	default:
		fmt.Fprintf(&b, "Leader   %s (site %s) elected, term %d, has not taken over yet\n", quoted(g.Leader), quoted(g.Site), g.Term)
	}
	if g.LeaseRemaining > 0 {
		fmt.Fprintf(&b, "Lease    %s left\n", g.LeaseRemaining.Round(10*time.Millisecond))
	}
	if g.Reason != "" {
		fmt.Fprintf(&b, "Why      %s: %s\n", g.Cause, quoted(g.Reason))
	}
	if g.Next != "" {
		fmt.Fprintf(&b, "Next     %s\n", quoted(g.Next))
	}
	if g.Policy != "" {
		fmt.Fprintf(&b, "Policy   %s\n", quoted(g.Policy))
	}
	for _, p := range g.Problems {
		fmt.Fprintf(&b, "Problem  %s\n", quoted(p))
	}
	fmt.Fprintln(&b)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
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
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t%d\t%s\n", quoted(m.Node), quoted(m.Site), m.Priority, role, quoted(m.Health), quoted(m.Host), m.PID, quoted(why))
	}
	t.Flush()
	if len(g.Members) == 0 {
		fmt.Fprintln(&b, "no daemon is registered")
	}
	return b.String()
}

// quoted keeps what others wrote into ZooKeeper from steering the terminal.
func quoted(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) {
			return '?'
		}
		return r
	}, s)
}

func since(t *time.Time) string {
	if t == nil {
		return "an unknown time"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}
