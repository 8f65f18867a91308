// Package status is what is shown: of the whole group, made from a snapshot, and of one daemon, published by its loop.
// It is read-only, so that all who show it agree.
package status

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"zkelectd/internal/cluster"
)

// Change is a turn of one daemon, as the on_change hook gets it.
type Change struct {
	Node   string    `json:"node"`
	Site   string    `json:"site"`
	Root   string    `json:"root"`
	Term   int64     `json:"term"`
	State  string    `json:"state"`
	Reason string    `json:"reason"`
	Time   time.Time `json:"time"`
}

// Group is the whole group, as read from ZooKeeper.
type Group struct {
	Root string `json:"root"`
	// State is READY, PROGRESS, WAITING (elected, not yet taken over) or NONE.
	State string `json:"state"`
	// Leader is the node that holds leadership or is to take it over; empty if there is none.
	Leader string `json:"leader,omitempty"`
	Site   string `json:"site,omitempty"`
	Term   int64  `json:"term,omitempty"`
	// Since is when the state was entered, by the leader's clock.
	Since *time.Time `json:"since,omitempty"`
	// API is where the leader answers over HTTP, empty if nowhere; LeaseRemaining what it says is left of its lease, for who
	// has asked it.
	API string `json:"api,omitempty"`
	// APIHost is the leader's host, empty unless the leader's own registration has this API address and the session of its
	// leadership: no other address is to be asked.
	APIHost        string           `json:"-"`
	LeaseRemaining cluster.Duration `json:"lease_remaining,omitempty"`
	// Cause and Reason are the elector's, of Term; without a leader, of the last decision.
	Cause  string `json:"cause,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Next is who has been elected to replace a leader that has not let go yet; empty if nobody has.
	Next string `json:"next,omitempty"`
	// Waiting says how long, and why, a leader that takes over waits before it starts its work; empty if it does not.
	Waiting string   `json:"waiting,omitempty"`
	Elector string   `json:"elector,omitempty"`
	Policy  string   `json:"policy,omitempty"`
	Members []Member `json:"members"`
	// Orders are the operators' that are in force: pause, move, cordons, an election asked for.
	Orders []Order `json:"orders,omitempty"`
	// Exclusions lists strikes, in force or served.
	Exclusions []cluster.Exclusion `json:"exclusions,omitempty"`
	// OpenTree reports that everybody who reaches ZooKeeper may change the group's znodes, as a member has last seen.
	OpenTree bool `json:"open_tree,omitempty"`
	// Problems are records that can't be read and the like, in words.
	Problems []string `json:"problems,omitempty"`
}

// Member is one registered daemon.
type Member struct {
	Node     string            `json:"node"`
	Site     string            `json:"site"`
	Priority int               `json:"priority"`
	Labels   map[string]string `json:"labels,omitempty"`
	// Roles are leader, candidate, elector; none for a standby.
	Roles []string `json:"roles"`
	// Health is ok, or why the member may not lead.
	Health string `json:"health"`
	// Latency is in milliseconds; it and Score are nil if not known.
	Latency *float64 `json:"latency_ms,omitempty"`
	Score   *float64 `json:"score,omitempty"`
	// Drift tells that its own configuration has another policy than the one in force.
	Drift       bool       `json:"policy_drift,omitempty"`
	Host        string     `json:"host"`
	PID         int        `json:"pid"`
	Incarnation string     `json:"incarnation"`
	Since       *time.Time `json:"since,omitempty"`
	// Why is the verdict of the last decision.
	Why string `json:"why,omitempty"`
}

// Order is something that an operator has asked for.
type Order struct {
	ID int64 `json:"id"`
	// Kind is pause, hard-pause, move, cordon, drain, step-down or reelect; Target the node or site that is meant.
	Kind   string    `json:"kind"`
	Target string    `json:"target,omitempty"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	Time   time.Time `json:"time"`
	// Remaining is about how long it will hold, by this host's clock; nil without end.
	Remaining *cluster.Duration `json:"remaining,omitempty"`
}

// States of a group beside those of leader/current.
const (
	StateWaiting = "WAITING"
	StateNone    = "NONE"
)

// Of makes the view of a group from a snapshot that has the members.
func Of(root string, s cluster.Snapshot) Group {
	g := Group{Root: root, State: StateNone, Members: []Member{}}
	if s.Elected.Readable() {
		e := s.Elected.Record
		g.Cause, g.Reason, g.Exclusions = string(e.Cause), e.Reason, exclusions(s)
		if _, alive := s.Member(e.Incarnation); alive && !over(s) {
			g.State, g.Leader, g.Site, g.Term, g.Since = StateWaiting, e.Node, e.Site, e.Term, moment(e.Time)
		}
	}
	if c := s.Current; c.Readable() {
		g.State, g.Leader, g.Site, g.Term, g.Since = string(c.Record.State), c.Record.Node, c.Record.Site, c.Record.Term, moment(c.Record.Time)
		g.API, g.APIHost, g.Waiting = c.Record.API, apiHost(s), s.Waiting()
		if e := s.Elected; e.Readable() && e.Record.Term != c.Record.Term {
			// A handover is under way, or was while this was read: the reason is not this leader's.
			g.Next = fmt.Sprintf("%s, term %d (%s: %s)", e.Record.Node, e.Record.Term, e.Record.Cause, e.Record.Reason)
			g.Cause, g.Reason = "", ""
		}
	}
	for i, m := range s.Members {
		if i == 0 {
			g.Elector = m.ID
		}
		g.Members = append(g.Members, member(s, m, i == 0))
		g.OpenTree = g.OpenTree || m.Node.Record.OpenTree
	}
	slices.SortStableFunc(g.Members, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Site, b.Site), cmp.Compare(a.Node, b.Node))
	})
	g.Orders = orders(s)
	g.policy(s)
	g.damage(s)
	g.refusals(s)
	return g
}

func apiHost(s cluster.Snapshot) string {
	c := s.Current
	m, ok := s.Member(c.Record.Incarnation)
	if !ok || !m.Node.Readable() || m.Node.Stat.Owner != c.Stat.Owner || m.Node.Record.API != c.Record.API {
		return ""
	}
	return m.Node.Record.Host
}

// damage lists the records that cannot be read, and what follows from it. That nobody has led yet is none.
func (g *Group) damage(s cluster.Snapshot) {
	say := func(err error, follows string) {
		if err != nil {
			g.Problems = append(g.Problems, err.Error()+follows)
		}
	}
	leadership := func(err, newer error) {
		switch {
		case errors.Is(err, cluster.ErrNeverWritten):
		case newer != nil:
			say(err, ", or stop its daemon: until then it neither elects nor takes over")
		default:
			say(err, "")
		}
	}
	leadership(s.Elected.Err, s.Elected.Newer())
	leadership(s.Fence.Err, s.Fence.Newer())
	leadership(s.Current.Err, s.Current.Newer())
	orders := func(err, newer error, damaged string) {
		if newer != nil {
			damaged = ": until then policy moves nobody"
		}
		say(err, damaged)
	}
	orders(s.Policy.Err, s.Policy.Newer(), ": the policy is damaged, so that nobody is moved by policy, and elections follow each elector's own "+
		"configuration; 'zkelectd repair policy' repairs it")
	orders(s.Control.Err, s.Control.Newer(), ": what operators have asked for is damaged, so that nobody is moved by policy; 'zkelectd repair control' empties it")
}

// refusals lists the members that run with an older configuration than their files.
func (g *Group) refusals(s cluster.Snapshot) {
	for _, m := range s.Members {
		if why := m.Node.Record.Refused; why != "" {
			g.Problems = append(g.Problems, fmt.Sprintf("%s runs with an older configuration, since its file is refused: %s", m.ID, why))
		}
	}
}

// over tells that the elected attempt has ended, so that the decision names nobody to wait for.
func over(s cluster.Snapshot) bool {
	if !s.Acquired() {
		return false
	}
	f := s.Fence.Record.State
	return f == cluster.FenceReleased || f == cluster.FenceUnclean || f == cluster.FenceRevoked
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func member(s cluster.Snapshot, m cluster.Member, elector bool) Member {
	n := m.Node.Record
	v := Member{
		Node: m.ID, Site: n.Site, Priority: n.Priority, Labels: n.Labels, Roles: []string{}, Health: "ok",
		Host: n.Host, PID: n.PID, Incarnation: m.Name, Since: moment(n.Since), Latency: n.Latency, Score: n.Score,
		Drift: s.Policy.Readable() && n.PolicyDigest != "" && n.PolicyDigest != s.Policy.Record.Rules.Digest(),
	}
	switch {
	case m.Node.Err != nil:
		v.Health = m.Node.Err.Error()
	case !m.Node.Exists:
		v.Health = "its znode below nodes is missing"
	case m.Superseded:
		v.Health = "registered again since"
	case n.Ineligible != "":
		v.Health = n.Ineligible
	case n.Unhealthy != "":
		v.Health = "unhealthy: " + n.Unhealthy
	}
	for _, c := range s.Control.Record.Cordons {
		if v.Health == "ok" && c.Meets(m.ID, n.Site) {
			v.Health = c.Words()
		}
	}
	holds := s.Current.Readable() && s.Current.Record.Incarnation == m.Name
	switch elected := s.Elected.Readable() && s.Elected.Record.Incarnation == m.Name && !over(s); {
	case holds && s.Current.Record.State == cluster.CurrentReady:
		v.Roles = append(v.Roles, "leader")
	case holds || elected:
		v.Roles = append(v.Roles, "candidate")
	}
	if elector {
		v.Roles = append(v.Roles, "elector")
	}
	for _, verdict := range s.Elected.Record.Ranking {
		if verdict.Incarnation == m.Name {
			v.Why = verdict.Why
			if verdict.Rank > 0 {
				v.Why = fmt.Sprintf("%d. %s", verdict.Rank, verdict.Why)
			}
		}
	}
	for _, x := range exclusions(s) {
		if x.Node == m.ID && !x.Served {
			v.Health = fmt.Sprintf("excluded for %s after strike %d: %s", x.For, x.Strikes, x.Reason)
		}
	}
	return v
}

// longestLease is more than any is: session timeouts end at ten minutes.
const longestLease = 10 * time.Minute

// Leased adds what only the leader knows to g, if answer is the leader's: how much of its lease is left, and whether its work
// can't be killed. The address may belong to another daemon by now, or to another program.
func (g Group) Leased(answer io.Reader) Group {
	var d Daemon
	if err := json.NewDecoder(io.LimitReader(answer, 1<<16)).Decode(&d); err != nil || d.Node != g.Leader || d.Term != g.Term {
		return g
	}
	if d.LeaseRemaining > 0 && d.LeaseRemaining < cluster.Duration(longestLease) {
		g.LeaseRemaining = d.LeaseRemaining
	}
	if d.Unkillable != "" {
		g.Problems = append(slices.Clone(g.Problems), fmt.Sprintf("the work of %s can't be killed, and %[1]s releases nothing while it runs: %s", d.Node, d.Unkillable))
	}
	return g
}
