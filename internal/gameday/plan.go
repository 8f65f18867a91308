// Package gameday plans drills, in which a leader fails on purpose, and compares what happened with what is promised. It is pure:
// 'zkelectd gameday' causes the failure and watches the group.
package gameday

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/status"
)

// Drill is the failure that is practiced.
type Drill string

// The drills.
const (
	// Move moves leadership to the next best member, and back.
	Move Drill = "move"
	// Daemon kills the daemon of the leader, Child the main process of its child.
	Daemon Drill = "daemon"
	Child  Drill = "child"
	// Network cuts the leader's host off from the ZooKeeper servers for a time.
	Network Drill = "network"
)

// Drills returns the names of all drills.
func Drills() []string { return []string{string(Move), string(Daemon), string(Child), string(Network)} }

// OnLeader reports whether the drill can only be run on the host that leads.
func (d Drill) OnLeader() bool { return d != Move }

// Limits are the figures of the leader that bound how long its failure is noticed.
type Limits struct {
	// Session is the session timeout, Wait the lease wait of a successor if the leader has not released, 0 if it need not wait.
	Session, Wait time.Duration
	// Kill is the kill margin, Revoke the revoke timeout.
	Kill, Revoke time.Duration
	// Takeover is how long the next leader may need until its work is ready.
	Takeover time.Duration
}

// LimitsOf returns the limits that the leader of a group has published. trust is set if a successor relies on the end of a session.
func LimitsOf(s cluster.Snapshot, trust bool, takeover time.Duration) Limits {
	f := s.Fence.Record
	l := Limits{Wait: time.Duration(f.LeaseWait), Kill: time.Duration(f.Kill), Revoke: time.Duration(f.RevokeTimeout), Takeover: takeover}
	if trust {
		l.Wait = 0
	}
	if m, found := s.Member(s.Current.Record.Incarnation); found {
		l.Session = time.Duration(m.Node.Record.SessionTimeout)
	}
	return l
}

// Promise returns how long there may be no READY leader in a drill, or for [Child] no child, and how that adds up.
func (l Limits) Promise(d Drill) (time.Duration, string) {
	ms := func(d time.Duration) string { return d.Round(10 * time.Millisecond).String() }
	switch d {
	case Move:
		return l.Revoke + l.Takeover, fmt.Sprintf("revoke timeout %s + takeover %s", ms(l.Revoke), ms(l.Takeover))
	case Network:
		expiry := cluster.Budget{}.Granted(l.Session).Failover
		return expiry + l.Wait + l.Takeover, fmt.Sprintf("end of the session %s + lease wait %s + takeover %s", ms(expiry), ms(l.Wait), ms(l.Takeover))
	}
	return l.Kill + l.Takeover, fmt.Sprintf("kill margin %s + takeover %s", ms(l.Kill), ms(l.Takeover))
}

// Refusals returns why a drill must not begin; none if it may.
func Refusals(d Drill, g status.Group, past cluster.GameDays, now time.Time) []string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	switch {
	case g.State != string(cluster.CurrentReady):
		add("there is no READY leader")
	case g.Next != "":
		add("a handover is under way, to %s", g.Next)
	case !slices.ContainsFunc(g.Members, func(m status.Member) bool { return m.Node != g.Leader && m.IsEligible() }):
		add("no other member is eligible, so nobody could take over from %s", g.Leader)
	}
	for _, r := range g.Requests {
		switch {
		case strings.HasSuffix(r.Kind, "pause"):
			add("the group is paused: run %s first", cluster.InGroup("'zkelectd resume'", g.Name))
		case r.Kind == "reelect", r.Kind == "move" && d == Move:
			add("a %s is in force, which the drill would replace: wait for its end, or run %s", r.Kind, cluster.InGroup("'zkelectd reelect'", cluster.SlotName(g.Name, g.Slot)))
		}
	}
	if other, found := past.UnderWay(now); found {
		add("%s runs the drill %s, until %s at the latest", other.By, other.Drill, other.Until.UTC().Format(time.RFC3339))
	}
	return all
}

// Problems returns what is wrong with the group and needs somebody to act.
func Problems(g status.Group) []string {
	return slices.DeleteFunc(slices.Clone(g.Problems), func(p string) bool { return slices.Contains(g.Passing, p) })
}
