// Package status provides the views of a group and of one daemon that the commands, the HTTP API and the metrics
// present. The group's is derived from a snapshot; the daemon's is published by its loop. Everything here is read-only,
// so that all presentations agree.
package status

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// Change is a daemon's change of phase, as the on_change hook receives it.
type Change struct {
	Node string `json:"node"`
	Site string `json:"site"`
	// Group is the group's name, with its slot if there is one.
	Group  string    `json:"group"`
	Root   string    `json:"root"`
	Term   int64     `json:"term"`
	State  string    `json:"state"`
	Reason string    `json:"reason"`
	Time   time.Time `json:"time"`
	// Fencing has the attempts of this daemon to fence earlier leaders in the term.
	Fencing []cluster.FencingResult `json:"fencing,omitempty"`
}

// Group is the whole group, as read from ZooKeeper.
type Group struct {
	// Name is the name of the group, without a slot.
	Name string `json:"-"`
	Root string `json:"root"`
	// Slot is the slot that this is about, Slots how many there are; empty and 0 for a group with one leader.
	Slot  string `json:"slot,omitempty"`
	Slots int    `json:"slots,omitempty"`
	// State is READY, PROGRESS, WAITING (elected, not yet taken over) or NONE.
	State string `json:"state"`
	// Leader is the node that holds leadership or is to take it over; empty if there is none.
	Leader string `json:"leader,omitempty"`
	Site   string `json:"site,omitempty"`
	Term   int64  `json:"term,omitempty"`
	// Since is when the state was entered, by the leader's clock.
	Since *time.Time `json:"since,omitempty"`
	// API is the address of the leader's HTTP API, empty if it has none. LeaseRemaining is what the leader has answered
	// there, see [Group.WithLeaderView].
	API string `json:"api,omitempty"`
	// APIHost is the leader's host, empty unless the leader's own registration has this API address and the session of its
	// leadership. No other address may be asked.
	APIHost        string           `json:"-"`
	LeaseRemaining cluster.Duration `json:"lease_remaining,omitempty"`
	// LeaseUnconfirmed is why the leader, although it was asked, has not confirmed its lease; empty if it has, or was
	// not asked.
	LeaseUnconfirmed string `json:"lease_unconfirmed,omitempty"`
	// Cause and Reason are the elector's, of Term; without a leader, of the last decision.
	Cause  string `json:"cause,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Value is what the leader's work publishes; empty if nothing.
	Value string `json:"value,omitempty"`
	// Next is the member that has been elected to replace a leader which has not released yet; empty if there is none.
	Next string `json:"next,omitempty"`
	// Heir is the member that is elected next if the leader is lost, and HeirSite its site; empty if nobody is, or if
	// the elector has published nothing.
	Heir     string `json:"heir,omitempty"`
	HeirSite string `json:"heir_site,omitempty"`
	// Deputies are the members that see whether the leader renews its lease, and replace it if it does not, in this order.
	Deputies []string `json:"deputies,omitempty"`
	// Waiting says how long, and why, a leader that takes over waits before it starts its work; empty if it does not wait.
	Waiting string `json:"waiting,omitempty"`
	// Stuck says why the holder can't give up leadership, as it has answered; see [Group.WithLeaderView]. It is one of
	// Problems, too.
	Stuck string `json:"-"`
	// Fencing has the attempts of the leader to fence earlier ones.
	Fencing []cluster.FencingResult `json:"fencing,omitempty"`
	// Failsafe is nil unless the policy enables failsafe mode, or the last leader may be in it.
	Failsafe *GroupFailsafe `json:"failsafe,omitempty"`
	// Obstructed is set if a current that is not the leader's keeps everybody from taking over.
	Obstructed bool `json:"-"`
	// Failing says that every member that could lead has failed, since when, and the last reason; empty otherwise. It
	// is one of Problems, too.
	Failing string `json:"failing,omitempty"`
	// NoLeader says why nobody leads, and none can be elected. Blocked is a sentence: who would lead instead, what
	// holds that member back, until when, and what to do. Both are forecasts, and empty otherwise.
	NoLeader string   `json:"no_leader,omitempty"`
	Blocked  string   `json:"preemption_blocked,omitempty"`
	Elector  string   `json:"elector,omitempty"`
	Policy   string   `json:"policy,omitempty"`
	Members  []Member `json:"members"`
	// Expected is how many members there should be: those that are registered, and those that are lost or stopped.
	// Absent has the nodes that have been members and are not registered now, until 'zkelectd forget' drops them.
	Expected int            `json:"members_expected"`
	Absent   []AbsentMember `json:"absent,omitempty"`
	// Requests are the operators' requests: pause, moves, cordons, a reelection.
	Requests []Request `json:"requests,omitempty"`
	// Exclusions lists strikes, in force or expired.
	Exclusions []cluster.Exclusion `json:"exclusions,omitempty"`
	// OpenTree reports whether anyone who can reach ZooKeeper can change the group's znodes, as a member last found.
	OpenTree bool `json:"open_tree,omitempty"`
	// Problems describes what is wrong with the group, such as records that cannot be read.
	Problems []string `json:"problems,omitempty"`
	// Passing has those of Problems that pass by themselves. The others need somebody to act.
	Passing []string `json:"passing_problems,omitempty"`

	// Severity says what the users of the work suffer, and Reasons why; see [Condition.Judge].
	Severity Severity `json:"severity"`
	Reasons  []string `json:"severity_reasons,omitempty"`
	// LeaderlessSince is since when no member is READY, by the clocks of members; nil if one is, or if that is not known.
	LeaderlessSince *time.Time `json:"leaderless_since,omitempty"`

	drift    string        // whose files do not have the policy in force, while that is no problem yet
	heirless bool          // the elector has published that there is no heir
	bound    time.Duration // how long a failover takes at most

	versionLabels []string // by which the policy in force ranks
}

// Member is one registered daemon.
type Member struct {
	Node     string            `json:"node"`
	Site     string            `json:"site"`
	Priority int               `json:"priority"`
	Labels   map[string]string `json:"labels,omitempty"`
	// Roles are leader, candidate, elector; none for a standby.
	Roles []string `json:"roles"`
	// Heir reports whether the member is elected next if the leader is lost.
	Heir bool `json:"heir,omitempty"`
	// Health is ok, or what the health probe of its host reports.
	Health string `json:"health"`
	// Standby is the state of the member's promotable work; nil without.
	Standby *cluster.Standby `json:"standby,omitempty"`
	// Eligible is yes, or why the member could not lead.
	Eligible string `json:"eligible"`
	// Latency is in milliseconds; it and Score are nil if not known.
	Latency *float64 `json:"latency_ms,omitempty"`
	Score   *float64 `json:"score,omitempty"`
	// Drift reports whether the policy in the host's configuration is not the one in force.
	Drift bool `json:"policy_drift,omitempty"`
	// Queued reports whether the member's takeover waits until its host may start further work.
	Queued bool `json:"queued,omitempty"`
	// API is the address of the member's HTTP API, empty if it has none that others can reach.
	API         string     `json:"api,omitempty"`
	Host        string     `json:"host"`
	PID         int        `json:"pid"`
	Version     string     `json:"version,omitempty"`
	Incarnation string     `json:"incarnation"`
	Since       *time.Time `json:"since,omitempty"`
	// Reason is the member's verdict in the last decision; empty if the decision does not hold one, see
	// [policy.Ranking.Verdicts].
	Reason string `json:"reason,omitempty"`
}

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
	g := Group{Name: v.name, Root: v.root, Slot: s.Slot, Slots: s.Slots.Record.Count, State: StateNone,
		Members: []Member{}}
	g.describeLeader(s)
	g.bound, g.LeaderlessSince = failoverBound(s), timeOrNil(s.LeaderlessSince())
	g.describeHeir(s)
	g.describeDeputies(s)
	inForce := ""
	if s.Policy.Readable() {
		inForce = s.Policy.Record.Rules.Digest()
	}
	heir, _ := s.NextLeader()
	for i, m := range s.Members {
		if i == 0 {
			g.Elector = m.ID
		}
		member := viewMember(s, m, i == 0, inForce)
		member.Heir = g.Heir != "" && heir.Incarnation == m.Name
		g.Members = append(g.Members, member)
		g.OpenTree = g.OpenTree || m.Node.Record.OpenTree
	}
	slices.SortStableFunc(g.Members, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Site, b.Site), cluster.CompareNodes(a.Node, b.Node))
	})
	g.Absent, g.Expected = absent(s)
	g.Requests = requests(s)
	g.versionLabels = policy.VersionLabels(s.Policy.Record.Rules)
	g.describePolicy(s, &v.policies)
	g.describeDamage(s)
	g.describeOldSettings(s)
	g.describeHosts(s)
	g.describeFailsafe(s)
	return g.Judged(time.Now())
}

// describeLeader sets who leads, since when and why.
func (g *Group) describeLeader(s cluster.Snapshot) {
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
	g.State, g.Leader, g.Site, g.Term, g.Since, g.Value = string(c.State), c.Node, c.Site, c.Term,
		timeOrNil(c.Time), c.Value
	g.API, g.APIHost, g.Waiting, g.Fencing = c.API, apiHost(s), cmp.Or(s.Waiting(), queued(s)), s.FencingResults()
	if e := s.Elected; e.Readable() && e.Record.Term != c.Term {
		// A handover is in progress, or was while this was read: the reason is not this leader's.
		g.Next = fmt.Sprintf("%s, term %d (%s: %s)", e.Record.Node, e.Record.Term, e.Record.Cause, e.Record.Reason)
		g.Cause, g.Reason = "", ""
	}
}

// queued returns why the takeover waits, if the host starts the work of other groups first; else "".
func queued(s cluster.Snapshot) string {
	for _, m := range s.Members {
		if m.Name == s.Current.Record.Incarnation && s.Current.Record.State == cluster.CurrentProgress &&
			m.Node.Record.Queued {
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

// viewMember returns the view of a member. inForce is the digest of the policy in force, "" if that is not known.
func viewMember(s cluster.Snapshot, m cluster.Member, elector bool, inForce string) Member {
	n := m.Node.Record
	return Member{
		Node: m.ID, Site: n.Site, Priority: n.Priority, Labels: n.Labels, Roles: roles(s, m, elector),
		Health: health(m), Standby: n.Standby, Eligible: eligible(s, m),
		API: n.API, Host: n.Host, PID: n.PID, Version: n.Version, Incarnation: m.Name, Since: timeOrNil(n.Since),
		Latency: n.Latency, Score: n.Score,
		Drift: inForce != "" && n.PolicyDigest != "" && n.PolicyDigest != inForce, Queued: n.Queued,
		Reason: lastVerdict(s, m),
	}
}

// What is said of a member without anything to report. CanLead is that of [Member.Eligible].
const (
	healthy = "ok"
	CanLead = "yes"
)

// health returns ok, or what the health probe reports.
func health(m cluster.Member) string {
	if why := m.Node.Record.Unhealthy; why != "" {
		return "unhealthy: " + why
	}
	return healthy
}

// IsEligible reports whether the member is eligible, unless the policy has a filter against it.
func (m Member) IsEligible() bool { return m.Eligible == CanLead }

// EligibleMembers returns how many members could lead.
func (g Group) EligibleMembers() (n int) {
	for _, m := range g.Members {
		if m.IsEligible() {
			n++
		}
	}
	return n
}

// eligible returns yes, or why the member is not eligible under any policy.
func eligible(s cluster.Snapshot, m cluster.Member) string {
	excluded := exclusions(s)
	refusal := func(m cluster.Member) string {
		for _, x := range excluded {
			if x.Node == m.ID && !x.Expired {
				return x.Describe()
			}
		}
		if s.DeclaredSilent(m.Name) {
			return "silent: " + cluster.SilentReason
		}
		if err := policy.CheckMember(m, s.Control.Record.Cordons); err != nil {
			return err.Error()
		}
		return ""
	}
	if why := refusal(m); why != "" {
		return why
	}
	warm := func(o cluster.Member) bool { return o.Node.Record.IsWarm() && refusal(o) == "" }
	if n := &m.Node.Record; !n.IsWarm() && m.Name != s.Elected.Record.Incarnation && slices.ContainsFunc(s.Members, warm) {
		return "its standby is " + n.Standby.String()
	}
	return CanLead
}

func roles(s cluster.Snapshot, m cluster.Member, elector bool) []string {
	list := []string{}
	holds := s.Current.Readable() && s.Current.Record.Incarnation == m.Name
	switch elected := s.Elected.Readable() && s.Elected.Record.Incarnation == m.Name && !s.Ended(); {
	case holds && s.Current.Record.State == cluster.CurrentReady:
		list = append(list, "leader")
	case holds || elected:
		list = append(list, "candidate")
	}
	if elector {
		list = append(list, "elector")
	}
	return list
}

// lastVerdict returns what the last decision recorded for the member, "" if it has joined since, or if the decision
// leaves its verdict out.
func lastVerdict(s cluster.Snapshot, m cluster.Member) string {
	for _, v := range s.Elected.Record.Ranking {
		if v.Incarnation == m.Name && v.Rank > 0 {
			return fmt.Sprintf("%d. %s", v.Rank, v.Reason)
		} else if v.Incarnation == m.Name {
			return v.Reason
		}
	}
	return ""
}

// describeHeir sets who is elected next if the leader is lost, as long as there is one that can be lost.
func (g *Group) describeHeir(s cluster.Snapshot) {
	heir, known := s.NextLeader()
	if !known || g.State == StateNone || s.Elected.Record.Node != g.Leader {
		return
	}
	g.heirless = heir.Incarnation == ""
	if _, alive := s.Member(heir.Incarnation); alive {
		g.Heir, g.HeirSite = heir.Node, heir.Site
	}
}

// describeDeputies sets who replaces a leader that falls silent.
func (g *Group) describeDeputies(s cluster.Snapshot) {
	if g.State == StateNone || s.Elected.Record.Node != g.Leader {
		return
	}
	for _, id := range s.Deputies() {
		if slices.ContainsFunc(s.Members, func(m cluster.Member) bool { return m.ID == id }) {
			g.Deputies = append(g.Deputies, id)
		}
	}
	if len(g.Deputies) > 0 && s.Ready() && s.Fence.Record.LeaseZnode == "" {
		g.Deputies = nil
		g.Problems = append(g.Problems, fmt.Sprintf("%s has no lease znode, so nobody sees whether it renews its "+
			"lease: if its host is lost, it is replaced only "+
			"when its session ends; its log says why", g.Leader))
	}
}

// deputiesText describes the deputies; empty if there are none.
func (g Group) deputiesText() string {
	if len(g.Deputies) == 0 {
		return ""
	}
	return strings.Join(g.Deputies, ", ") + " (to replace " + g.Leader + " if it does not renew its lease)"
}

// heirText describes the heir; empty if none was published.
func (g Group) heirText() string {
	switch {
	case g.Heir != "":
		return g.Heir + " (site " + g.HeirSite + "), elected next if " + g.Leader + " is lost"
	case g.heirless && g.Leader != "":
		return "none: if " + g.Leader + " is lost, there is no leader"
	}
	return ""
}

// CheckHeir returns an error unless the daemon is the heir, and its knowledge of the group is fresh.
func (d Daemon) CheckHeir() error {
	switch err := d.CheckReady(); {
	case err != nil:
		return err
	case d.IsHeir:
		return nil
	case d.Phase != "standby":
		return errors.New("this daemon is " + d.Phase + ", not a standby")
	case d.Heir != "":
		return errors.New("the heir is " + d.Heir)
	}
	return errors.New("there is no heir, or none is published")
}

// exclusions returns the exclusions on record, without those whose strikes operators have cleared. Only the elector
// knows for sure whether one has expired, and writes it down with its next decision; until then this host's clock
// decides.
func exclusions(s cluster.Snapshot) []cluster.Exclusion {
	all := s.Control.Record.Uncleared(s.Elected.Record.Exclusions)
	for i := range all {
		x := &all[i]
		x.Expired = x.Expired || (!x.Time.IsZero() && time.Since(x.Time) >= time.Duration(x.For))
	}
	return all
}
