package status

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

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
	switch {
	case g.Reason == "":
	case g.Leader == "":
		r.add("Last", "the last election was for "+g.Cause+": "+g.Reason)
	default:
		r.add("Why", g.Cause+": "+g.Reason)
	}
	r.add("Waiting", g.Waiting)
	for _, attempt := range g.Fencing {
		r.add("Fencing", attempt.String())
	}
	r.add("Failsafe", g.Failsafe.text())
	r.add("Next", g.Next)
	r.add("Heir", g.heirText())
	r.add("Deputies", g.deputiesText())
	r.add("Blocked", g.Blocked)
	r.add("Members", membersLine(g.Name, len(g.Members), g.Expected, g.Absent))
	r.add("Policy", g.Policy)
	r.add("Files", g.drift)
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

const openTree = "anyone who can reach ZooKeeper can stop this group, or lock it out: see zookeeper.acl in " +
	"docs/security.md"

func (g Group) writeLeader(b *strings.Builder) {
	switch g.State {
	case StateNone:
		fmt.Fprintln(b, "Leader   none")
	case string(cluster.CurrentReady):
		fmt.Fprintf(b, "Leader   %s (site %s), term %d, ready since %s\n", Printable(g.Leader), Printable(g.Site),
			g.Term, since(g.Since))
		if g.Value != "" {
			fmt.Fprintf(b, "Value    %s\n", Printable(g.Value))
		}
	case string(cluster.CurrentProgress):
		fmt.Fprintf(b, "Leader   %s (site %s), term %d, taking over since %s\n", Printable(g.Leader), Printable(g.Site),
			g.Term, since(g.Since))
	default:
		fmt.Fprintf(b, "Leader   %s (site %s) elected, term %d, has not taken over yet\n", Printable(g.Leader),
			Printable(g.Site), g.Term)
	}
	if g.LeaderlessSince != nil {
		fmt.Fprintf(b, "Without a READY leader since %s\n", since(g.LeaderlessSince))
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
	fmt.Fprint(t, "NODE\tSITE\tPRIORITY\t")
	for _, label := range g.versionLabels {
		fmt.Fprint(t, Printable(label), "\t")
	}
	fmt.Fprint(t, "ROLE\tHEALTH\tELIGIBLE")
	if wide {
		fmt.Fprint(t, "\tHOST\tPID\tVERSION\tVERDICT OF THE LAST ELECTION")
	}
	fmt.Fprintln(t)
	for _, m := range g.Members {
		health, eligible := m.columns(wide)
		fmt.Fprintf(t, "%s\t%s\t%d\t", Printable(m.Node), Printable(m.Site), m.Priority)
		for _, label := range g.versionLabels {
			fmt.Fprint(t, Printable(cmp.Or(m.Labels[label], "-")), "\t")
		}
		fmt.Fprintf(t, "%s\t%s\t%s", m.role(), health, eligible)
		if wide {
			fmt.Fprintf(t, "\t%s\t%d\t%s\t%s", Printable(m.Host), m.PID, Printable(cmp.Or(m.Version, "-")),
				Printable(cmp.Or(m.Reason, "joined since")))
		}
		fmt.Fprintln(t)
	}
	now := time.Now()
	for _, m := range g.Absent {
		unknown := strings.Repeat("-\t", 1+len(g.versionLabels))
		fmt.Fprintf(t, "%s\t%s\t%s%s\t-\t-\n", Printable(m.Node), Printable(m.Site), unknown, Printable(m.StateAt(now)))
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

// columns returns the member's health and whether it is eligible; unless wide, without the details that other lines
// have.
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

// Printable returns s with a ? for each character that is not printable. Text from ZooKeeper, which others may have
// written, cannot control the terminal then, nor break or reverse a line.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// PrintableJSON does the same for JSON without a loss: characters that are not printable become escapes. encoding/json
// escapes the control characters of ASCII only, but not those of C1 and those that change the direction of text.
func PrintableJSON(text []byte) []byte {
	var b bytes.Buffer
	copied := 0
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if ascii := r < utf8.RuneSelf && r != 0x7f; ascii || unicode.IsPrint(r) {
			i += size
			continue
		}
		b.Write(text[copied:i])
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
		i += size
		copied = i
	}
	if copied == 0 {
		return text
	}
	b.Write(text[copied:])
	return b.Bytes()
}

// maxLease is longer than any lease: session timeouts end at ten minutes.
const maxLease = 10 * time.Minute

// WithLeaderView returns g with what only the leader knows, if answer is the leader's: what remains of its lease, which
// node it is fencing, and whether its work can't be killed. The address may belong to another daemon by now, or to
// another program.
func (g Group) WithLeaderView(answer io.Reader) Group {
	var d struct {
		Daemon
		Reason string `json:"reason"` // why this daemon does not lead
	}
	err := json.NewDecoder(io.LimitReader(answer, 1<<16)).Decode(&d)
	// Terms start at the time of day, so a member of the same name in a group at another root can be in the same term.
	if err != nil || d.Node != g.Leader || d.Term != g.Term || d.Root != g.Root {
		return g.Unconfirmed(fmt.Sprintf("%s answers, but not as %s in term %d of %s", g.API, g.Leader, g.Term, g.Root))
	}
	if d.LeaseRemaining > 0 && d.LeaseRemaining < cluster.Duration(maxLease) {
		g.LeaseRemaining = d.LeaseRemaining
	} else {
		g = g.Unconfirmed(fmt.Sprintf("%s answers: %s", g.Leader, cmp.Or(d.Reason, "it has no lease")))
	}
	if g.Failsafe != nil && d.Failsafe != nil {
		view := *g.Failsafe
		view.Leader, g.Failsafe = d.Failsafe, &view
		g.Problems = append(slices.Clone(g.Problems), d.Failsafe.Problems()...)
	}
	if d.Fencing != nil {
		g.Waiting = strings.TrimPrefix(fmt.Sprintf("%s; %s has been fencing %s for %s", g.Waiting, d.Node, d.Fencing.Node,
			time.Duration(d.Fencing.For).Round(100*time.Millisecond)), "; ")
	}
	if g.Stuck = d.Stuck(); g.Stuck != "" {
		g.Problems = append(slices.Clone(g.Problems), g.Stuck)
	}
	return g.Judged(time.Now())
}

// Stuck says why this member can't give up leadership; empty if it can, or has none.
func (d *Daemon) Stuck() string {
	if d.Unkillable == "" || d.Term == 0 {
		return ""
	}
	return fmt.Sprintf("the work of %s can't be killed, and %[1]s releases nothing while it runs: %s", d.Node,
		d.Unkillable)
}

// Unconfirmed returns g with why the leader has not confirmed its lease, if ZooKeeper says that it leads.
func (g Group) Unconfirmed(reason string) Group {
	if g.State == string(cluster.CurrentReady) {
		g.LeaseUnconfirmed = reason
	}
	return g.Judged(time.Now())
}
