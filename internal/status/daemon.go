package status

import (
	"fmt"
	"time"

	"zkelectd/internal/cluster"
)

// Daemon is what one daemon shows of itself. Its loop publishes it; who asks sees it by [Daemon.Asked].
type Daemon struct {
	Node        string `json:"node"`
	Site        string `json:"site"`
	Root        string `json:"root"`
	Incarnation string `json:"incarnation,omitempty"`
	// Phase is the daemon's own, as in package transition.
	Phase   string `json:"phase"`
	Elector bool   `json:"elector"`
	// Loop tells that a loop works; between two sessions there is none. Session tells that its session of ZooKeeper lives, as
	// far as is known, Connected that a server is connected, which proves nothing about a lease.
	Loop      bool `json:"loop"`
	Session   bool `json:"session"`
	Connected bool `json:"connected"`
	// Unhealthy says what is wrong with the host by its own health probe; empty if nothing is.
	Unhealthy string `json:"unhealthy,omitempty"`
	// Child tells that a process of the leader-only child is there.
	Child bool `json:"child"`
	// Unit is the systemd unit that is the leader-only work, "" for a command.
	Unit string `json:"unit,omitempty"`
	// Containment is what holds the leader-only work together: cgroup, pidns or keeper. Unkillable says what of the work can't
	// be killed: while it runs nothing is released. Empty if all can.
	Containment string `json:"containment,omitempty"`
	Unkillable  string `json:"unkillable,omitempty"`
	// Term is the one it holds, 0 if none.
	Term int64 `json:"term,omitempty"`
	// LeaseEnds is on the host's CLOCK_BOOTTIME; LeaseRemaining is what is left of it when asked.
	LeaseEnds      time.Duration    `json:"-"`
	LeaseRemaining cluster.Duration `json:"lease_remaining,omitempty"`
	// Lease is how long it lasts from each renewal.
	Lease          cluster.Duration `json:"lease,omitempty"`
	SessionTimeout cluster.Duration `json:"session_timeout,omitempty"`
	// Elected is the node of the newest decision that this daemon has seen, Cause and Reason are why.
	Elected     string `json:"elected,omitempty"`
	ElectedSite string `json:"elected_site,omitempty"`
	ElectedTerm int64  `json:"elected_term,omitempty"`
	Cause       string `json:"cause,omitempty"`
	Reason      string `json:"reason,omitempty"`
	// Holder is who holds leadership; nil where this daemon need not know.
	Holder *Holder `json:"holder,omitempty"`
	// Note says why nobody can be elected, where this daemon is the elector.
	Note string `json:"note,omitempty"`
	// Holding says why a better member does not take over, where this daemon is the elector.
	Holding string `json:"holding,omitempty"`
	// Newer says which record has a format that this daemon does not know, so that it takes no part in electing; empty if none.
	Newer string `json:"newer,omitempty"`
	// Drift says how the policy of its own configuration differs from the one in force; empty if it does not.
	Drift string `json:"drift,omitempty"`
	// OpenTree reports that strangers may change the group's znodes, as this daemon has last seen.
	OpenTree bool `json:"open_tree,omitempty"`
	// Sites and Paused are what the elector sees: how many of each site's members may lead and may not; nil elsewhere.
	Sites  map[string]Standing `json:"-"`
	Paused bool                `json:"paused,omitempty"`
	// PausedHard tells that the pause is a hard one.
	PausedHard bool `json:"-"`
	// At is when the snapshot was read, Heard when the last read began that a server has answered, Published when the loop
	// made this view; all on CLOCK_BOOTTIME.
	At        time.Duration `json:"-"`
	Heard     time.Duration `json:"-"`
	Published time.Duration `json:"-"`
	// Age is the age of the view, LastResponseAge the time since ZooKeeper last answered, both at the time of [Daemon.Asked].
	Age             cluster.Duration `json:"age"`
	LastResponseAge cluster.Duration `json:"last_response_age,omitempty"`
}

// Standing counts a site's members: those that policy lets lead, and the others; Excluded are those of the latter that have
// strikes.
type Standing struct{ Eligible, Ineligible, Excluded int }

// SurveyEvery is how often a daemon reads something of ZooKeeper although nothing has happened.
const SurveyEvery = 10 * time.Second

// Pulse is how often a loop publishes although nothing has happened.
func Pulse(session time.Duration) time.Duration { return min(session/4, 5*time.Second) }

// Asked is the view as of now, on the host's CLOCK_BOOTTIME.
func (d Daemon) Asked(now time.Duration) Daemon {
	d.Age, d.LeaseRemaining, d.LastResponseAge = cluster.Duration(now-d.Published), 0, 0
	if d.LeaseEnds > 0 {
		d.LeaseRemaining = cluster.Duration(max(0, d.LeaseEnds-now))
	}
	if d.Heard > 0 {
		d.LastResponseAge = cluster.Duration(now - d.Heard)
	}
	return d
}

// State is the phase, unless nobody can vouch for that: stuck, or connecting before there is a session.
func (d Daemon) State() string {
	switch {
	case d.Stuck() != "":
		return "stuck"
	case !d.Loop:
		return "connecting"
	}
	return d.Phase
}

// Newest is the term held, else that of the newest decision.
func (d Daemon) Newest() int64 {
	if d.Term != 0 {
		return d.Term
	}
	return d.ElectedTerm
}

// Shown is the whole view as others get it.
type Shown struct {
	Daemon
	Term  int64  `json:"term"`
	State string `json:"state"`
}

// Shown adds what is derived to the view.
func (d Daemon) Shown() Shown { return Shown{d, d.Newest(), d.State()} }

// Each of the following says why the answer is no, "" for yes. What is stale or unknown is no.

// Stuck is about the loop: without a sign of life for two pulses it counts as stuck. Where there is none, nothing is held.
func (d Daemon) Stuck() string {
	if !d.Loop {
		return ""
	}
	age := time.Duration(d.Age)
	if limit := max(time.Second, 2*Pulse(time.Duration(d.SessionTimeout))); d.Published == 0 || age < 0 || age > limit {
		return fmt.Sprintf("the loop has not turned for %s, more than %s", age.Round(time.Millisecond), limit)
	}
	return ""
}

// NotReady is about the session: up, and what is known of the group as new as it can be.
func (d Daemon) NotReady() string {
	if why := d.NotRegistered(); why != "" {
		return why
	}
	switch limit, age := SurveyEvery+time.Duration(d.SessionTimeout), time.Duration(d.LastResponseAge); {
	case !d.Connected:
		return "no ZooKeeper server is connected"
	case d.At == 0:
		return "the group has not been read yet"
	case d.Heard == 0 || age > limit:
		return fmt.Sprintf("ZooKeeper has not answered for %s, more than %s", age.Round(time.Millisecond), limit)
	}
	return ""
}

// NotRegistered is about being a member of the group, by a loop that turns.
func (d Daemon) NotRegistered() string {
	switch {
	case d.Stuck() != "":
		return d.Stuck()
	case !d.Session:
		return "there is no session"
	case d.Phase == "ended":
		return "the session is over"
	case d.Incarnation == "":
		return "this daemon is not registered"
	}
	return ""
}

// NotHealthy is about a member whose host may lead, by its own probe.
func (d Daemon) NotHealthy() string {
	if why := d.NotRegistered(); why != "" {
		return why
	}
	if d.Unhealthy != "" {
		return "this host is unhealthy: " + d.Unhealthy
	}
	return ""
}

// NotReplica is about a healthy standby whose knowledge is fresh.
func (d Daemon) NotReplica() string {
	switch why := d.NotReady(); {
	case why != "":
		return why
	case d.Phase != "standby":
		return "this daemon is " + d.Phase + ", no standby"
	}
	return d.NotHealthy()
}

// NotLeader is about the READY leader whose lease is valid now. The lease alone is proof; a connection is none.
func (d Daemon) NotLeader() string {
	switch why := d.NotRegistered(); {
	case why != "":
		return why
	case d.Phase != "leading":
		return "this daemon is " + d.Phase + ", not leading"
	case d.LeaseRemaining <= 0:
		return "the lease is over"
	}
	return ""
}

// Leads tells that the daemon is the READY leader and its lease is valid.
func (d Daemon) Leads() bool { return d.NotLeader() == "" }
