package status

import (
	"time"

	"zkelectd/internal/cluster"
)

// Daemon is the view of one daemon. Its loop publishes it; readers call [Daemon.At] to fill in the ages.
type Daemon struct {
	Node string `json:"node"`
	Site string `json:"site"`
	// Group is the group's name, Root its znode.
	Group       string `json:"group"`
	Root        string `json:"root"`
	Incarnation string `json:"incarnation,omitempty"`
	// Membership is whether this host takes part in the group, one of the constants below; empty while there is no session.
	// MembershipReason is why it does not.
	Membership       string `json:"membership,omitempty"`
	MembershipReason string `json:"membership_reason,omitempty"`
	// Phase is the daemon's phase, see package transition.
	Phase   string `json:"phase"`
	Elector bool   `json:"elector"`
	// Loop reports whether there is an event loop, as there is during a session. Session reports whether the session has not
	// ended as far as the client knows, Connected whether a server is connected, which proves nothing about a lease.
	Loop      bool `json:"loop"`
	Session   bool `json:"session"`
	Connected bool `json:"connected"`
	// Unhealthy is why the host's own health probe fails; empty if it does not.
	Unhealthy string `json:"unhealthy,omitempty"`
	// Child reports whether a process of the leader-only child exists.
	Child bool `json:"child"`
	// Unit is the systemd unit that is the leader-only work, "" for a command.
	Unit string `json:"unit,omitempty"`
	// Containment is what contains the leader-only work: cgroup or keeper. Unkillable names the part of the work that
	// can't be killed, empty if there is none: while it runs nothing is released.
	Containment string `json:"containment,omitempty"`
	Unkillable  string `json:"unkillable,omitempty"`
	// WatchdogDevice is the device that resets the host if the work outlives its lease; nil if none is configured.
	WatchdogDevice *WatchdogDevice `json:"watchdog_device,omitempty"`
	// Failsafe is nil unless the policy or the host's configuration enables failsafe mode.
	Failsafe *Failsafe `json:"failsafe,omitempty"`
	// Fencing is the node that this daemon switches off right now, because it takes over from it; nil if there is none.
	Fencing *Fencing `json:"fencing,omitempty"`
	// Term is the term of the leadership that it holds, 0 for none.
	Term int64 `json:"term,omitempty"`
	// LeaseEnds is on the host's CLOCK_BOOTTIME. LeaseRemaining is filled in by [Daemon.At].
	LeaseEnds      time.Duration    `json:"-"`
	LeaseRemaining cluster.Duration `json:"lease_remaining,omitempty"`
	// Lease is the duration of a lease from its renewal.
	Lease          cluster.Duration `json:"lease,omitempty"`
	SessionTimeout cluster.Duration `json:"session_timeout,omitempty"`
	// Elected is the node of the newest decision that this daemon has seen, made for Cause and Reason.
	Elected     string `json:"elected,omitempty"`
	ElectedSite string `json:"elected_site,omitempty"`
	ElectedTerm int64  `json:"elected_term,omitempty"`
	Cause       string `json:"cause,omitempty"`
	Reason      string `json:"reason,omitempty"`
	// Heir is the node that is elected next if the elected one is lost, as the elector has published it, and IsHeir reports whether
	// this daemon is.
	Heir   string `json:"heir,omitempty"`
	IsHeir bool   `json:"is_heir,omitempty"`
	// Holder is the holder of leadership; nil if this daemon does not know it, see [Leadership].
	Holder *Holder `json:"holder,omitempty"`
	// Note says why no member is eligible, if this daemon is the elector.
	Note string `json:"note,omitempty"`
	// Blocked says why a better member does not take over, if this daemon is the elector.
	Blocked string `json:"preemption_blocked,omitempty"`
	// Newer names the record whose format this daemon is too old for, so that it does not elect; empty if there is none.
	Newer string `json:"newer,omitempty"`
	// Drift says how the policy in the host's configuration differs from the one in force; empty if they are the same.
	Drift string `json:"drift,omitempty"`
	// SlotsDrift says the same of the number of slots and of per_node.
	SlotsDrift string `json:"slots_drift,omitempty"`
	// OpenTree reports whether anyone who can reach ZooKeeper can change the group's znodes, as this daemon last found.
	OpenTree bool `json:"open_tree,omitempty"`
	// Sites, Members, Paused and PausedHard are what the elector knows; zero in other daemons.
	Sites      map[string]SiteCounts `json:"-"`
	Members    MemberCounts          `json:"-"`
	Paused     bool                  `json:"paused,omitempty"`
	PausedHard bool                  `json:"-"`
	// SnapshotAt is when the snapshot was read, RespondedAt when the last read began that a server has answered, PublishedAt
	// when the loop published this view; all on CLOCK_BOOTTIME.
	SnapshotAt  time.Duration `json:"-"`
	RespondedAt time.Duration `json:"-"`
	PublishedAt time.Duration `json:"-"`
	// Age is the age of the view, LastResponseAge the time since the last read that ZooKeeper has answered began. Both are
	// filled in by [Daemon.At].
	Age             cluster.Duration `json:"age"`
	LastResponseAge cluster.Duration `json:"last_response_age,omitempty"`
}

// Fencing is a node that is being fenced.
type Fencing struct {
	Node string `json:"node"`
	// Since is on the host's CLOCK_BOOTTIME. For, the time since then, is filled in by [Daemon.At].
	Since time.Duration    `json:"-"`
	For   cluster.Duration `json:"for"`
}

// The values of [Daemon.Membership].
const (
	MembershipJoining = "joining"
	MembershipMember  = "member"
	MembershipLeaving = "leaving"
	// MembershipRefused: the host cannot take part in the group, and tries again from time to time.
	MembershipRefused = "refused"
	// MembershipParked: the group's loop has failed several times, and does not run until the next reload.
	MembershipParked = "parked"
	// MembershipSuspended: requests of the group broke the connection, and are not sent for a while.
	MembershipSuspended = "suspended"
)

// takesPart reports whether the host is a member of the group, as far as is known.
func (d Daemon) takesPart() bool { return d.Membership == "" || d.Membership == MembershipMember }

// SiteCounts counts the members of a site. Excluded are those of the ineligible ones that have strikes.
type SiteCounts struct{ Eligible, Ineligible, Excluded int }

// MemberCounts counts the members of a group: how many are expected, and how many of these are lost.
type MemberCounts struct{ Expected, Lost int }

// CountMembers counts the members.
func CountMembers(s cluster.Snapshot) MemberCounts {
	list, expected := absent(s)
	return MemberCounts{Expected: expected, Lost: len(Lost(list))}
}

// At returns the view with the ages and the remaining lease at a time of the host's CLOCK_BOOTTIME.
func (d Daemon) At(now time.Duration) Daemon {
	d.Age, d.LeaseRemaining, d.LastResponseAge = cluster.Duration(now-d.PublishedAt), 0, 0
	if d.LeaseEnds > 0 {
		d.LeaseRemaining = cluster.Duration(max(0, d.LeaseEnds-now))
	}
	if d.RespondedAt > 0 {
		d.LastResponseAge = cluster.Duration(now - d.RespondedAt)
	}
	if f := d.Fencing; f != nil { // the view is shared
		d.Fencing = &Fencing{Node: f.Node, Since: f.Since, For: cluster.Duration(now - f.Since)}
	}
	return d
}

// State returns the phase, unless that is not known or the host is not a member: then it is stuck, connecting while there is no
// session, or the membership.
func (d Daemon) State() string {
	switch {
	case d.CheckLoop() != nil:
		return "stuck"
	case !d.takesPart():
		return d.Membership
	case !d.Loop:
		return "connecting"
	}
	return d.Phase
}

// LatestTerm returns the term of the leadership that the daemon holds, else that of the newest decision.
func (d Daemon) LatestTerm() int64 {
	if d.Term != 0 {
		return d.Term
	}
	return d.ElectedTerm
}

// Response is the view of a daemon as the HTTP API presents it.
type Response struct {
	Daemon
	Term  int64  `json:"term"`
	State string `json:"state"`
}

// Response adds what is derived from the view to it.
func (d Daemon) Response() Response { return Response{d, d.LatestTerm(), d.State()} }
