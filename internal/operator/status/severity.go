package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/losses"
	"zkelectd/internal/sys/suggest"
)

// Severity says what the users of the work suffer. All views, commands and metrics take it from [Condition.Judge].
type Severity int

// The severities. They are the exit statuses of monitoring plugins, too, whose 3 is for what is not known.
const (
	SeverityOK Severity = iota
	// SeverityWarning: the work runs, but may not survive the next failure, or it is interrupted for no longer than any
	// loss takes.
	SeverityWarning
	// SeverityCritical: the work does not run, and has not for longer than any loss takes, or will not start by itself.
	SeverityCritical
)

// String returns the severity in one word.
func (s Severity) String() string { return [...]string{"ok", "warning", "critical"}[s] }

// MarshalText implements encoding.TextMarshaler.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Severity) UnmarshalText(text []byte) error {
	for _, known := range []Severity{SeverityOK, SeverityWarning, SeverityCritical} {
		if known.String() == string(text) {
			*s = known
			return nil
		}
	}
	return fmt.Errorf("%q is no severity", text)
}

// Condition is what the severity of a group follows from.
type Condition struct {
	// State is that of [Group.State], Leader the node that leads or is to lead.
	State, Leader string
	// ReadySince is since when the leader is READY, zero if that is not known.
	ReadySince time.Time
	// LeaderlessSince is since when no member is READY, zero if that is not known. Bound is how long that may last
	// after any loss.
	LeaderlessSince time.Time
	Bound           time.Duration
	// Unconfirmed is why the leader has not confirmed its lease.
	Unconfirmed string
	// Failing says that every member that could lead has failed, NoLeader why nobody can be elected.
	Failing, NoLeader string
	// Blocked reports whether the elected member can't take over unless somebody acts.
	Blocked bool
	// Members is how many are registered, Expected how many there should be. Lost are the nodes that are lost.
	Members, Expected int
	Lost              []string
	// Problems are everything else that somebody should know, HardPause the request that keeps a dead leader from being
	// replaced.
	Problems  []string
	HardPause string
}

// Judge returns the severity at a time, and the reasons, the worst first.
func (c Condition) Judge(now time.Time) (Severity, []string) {
	critical, why := c.suffers(now)
	reasons := nonEmpty(why)
	if c.State == string(cluster.CurrentReady) && c.Unconfirmed != "" {
		reasons = append(reasons, fmt.Sprintf("the lease of %s is not confirmed: %s", c.Leader, c.Unconfirmed))
	}
	var lost []string
	if len(c.Lost) > 0 {
		lost = []string{"lost: " + suggest.List(c.Lost, maxLostNamed)}
	}
	rest := slices.Concat(lost, c.Problems, nonEmpty(c.HardPause))
	if c.Blocked { // somebody must act: what says why stands first
		rest = slices.Concat(c.Problems, nonEmpty(c.HardPause), lost)
	}
	for _, p := range rest {
		said := strings.TrimPrefix(p, "nobody leads: ")
		if !slices.ContainsFunc(reasons, func(r string) bool { return strings.Contains(r, said) }) {
			reasons = append(reasons, p)
		}
	}
	switch {
	case critical:
		return SeverityCritical, reasons
	case len(reasons) > 0:
		return SeverityWarning, reasons
	}
	return SeverityOK, nil
}

// steadyAfter is how long a leader must have been READY until the failures before it are only a warning.
const steadyAfter = time.Minute

// mayFailAgain says of a READY leader that every member has failed before.
func mayFailAgain(leader, failing string) string {
	if failing == "" {
		return ""
	}
	return fmt.Sprintf("%s leads, but may fail again: %s", leader, failing)
}

// MayFailAgain returns Failing, with what that means for a READY leader.
func (g Group) MayFailAgain() string {
	if g.State == string(cluster.CurrentReady) {
		return mayFailAgain(g.Leader, g.Failing)
	}
	return g.Failing
}

// suffers says what keeps the work from running; nothing if it runs. It reports whether that is worse than a failover.
func (c Condition) suffers(now time.Time) (critical bool, why string) {
	leaderless := "no leader"
	switch c.State {
	case string(cluster.CurrentReady):
		// Between two crashes the work runs as well.
		steady := !c.ReadySince.IsZero() && now.Sub(c.ReadySince) >= steadyAfter
		return c.Failing != "" && !steady, mayFailAgain(c.Leader, c.Failing)
	case string(cluster.CurrentProgress):
		leaderless = fmt.Sprintf("no leader: %s is taking over", c.Leader)
	case StateWaiting:
		leaderless = fmt.Sprintf("no leader: %s is elected, and has not taken over", c.Leader)
	}
	switch {
	case c.Failing != "":
		return true, leaderless + "; " + c.Failing
	case c.State == StateNone && c.Members == 0:
		return true, leaderless + ": no daemon is registered"
	case c.State == StateNone && c.NoLeader != "":
		return true, leaderless + ": " + c.NoLeader
	case c.Blocked:
		return true, leaderless
	case c.LeaderlessSince.IsZero():
		return c.State == StateNone, leaderless
	}
	if lasted := now.Sub(c.LeaderlessSince); lasted > c.Bound {
		limit := c.Bound.Round(100 * time.Millisecond)
		return true, fmt.Sprintf("%s, for %s, longer than a failover takes (%s)", leaderless, age(lasted), limit)
	}
	return false, leaderless
}

// ConditionOf returns what a snapshot alone shows of the condition.
func ConditionOf(s cluster.Snapshot) Condition {
	g := Group{
		State: StateNone, Members: make([]Member, len(s.Members)), Obstructed: s.ForeignCurrent(),
		LeaderlessSince: timeOrNil(s.LeaderlessSince()), bound: failoverBound(s),
	}
	g.describeLeader(s)
	g.Absent, g.Expected = absent(s)
	return g.Condition()
}

// failoverBound returns how long it takes after any loss until another member may start its work, by the longest
// session timeout.
func failoverBound(s cluster.Snapshot) time.Duration {
	var session time.Duration
	for _, m := range s.Members {
		session = max(session, time.Duration(m.Node.Record.SessionTimeout))
	}
	return losses.Bound(session, time.Duration(s.Fence.Record.FencingLimit))
}

// Condition returns what the severity of the group follows from.
func (g Group) Condition() Condition {
	c := Condition{
		State: g.State, Leader: g.Leader, Bound: g.bound, Unconfirmed: g.LeaseUnconfirmed, Failing: g.Failing,
		NoLeader: g.NoLeader,
		Blocked:  g.Obstructed || g.Failsafe != nil && g.Failsafe.Stuck,
		Members:  len(g.Members), Expected: g.Expected, Lost: Lost(g.Absent), Problems: g.Problems,
	}
	if g.Since != nil {
		c.ReadySince = *g.Since
	}
	if g.LeaderlessSince != nil {
		c.LeaderlessSince = *g.LeaderlessSince
	}
	for _, r := range g.Requests {
		if r.Kind == "hard-pause" {
			c.HardPause = r.String()
		}
	}
	return c
}

// Judged returns the group with its severity at a time.
func (g Group) Judged(now time.Time) Group {
	g.Severity, g.Reasons = g.Condition().Judge(now)
	return g
}

func nonEmpty(texts ...string) []string {
	return slices.DeleteFunc(texts, func(s string) bool { return s == "" })
}
