package status

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
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
	// Membership is whether this host takes part in the group, one of the constants below; empty while there is no
	// session. MembershipReason is why it does not.
	Membership       string `json:"membership,omitempty"`
	MembershipReason string `json:"membership_reason,omitempty"`
	// Phase is the daemon's phase, see package transition.
	Phase   string `json:"phase"`
	Elector bool   `json:"elector"`
	// Loop reports whether there is an event loop, as there is during a session. Session reports whether the session
	// has not ended as far as the client knows, Connected whether a server is connected, which proves nothing about a
	// lease.
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
	// Standby is the state of this host's promotable work, also while it leads; nil without child.promote.
	Standby *cluster.Standby `json:"standby,omitempty"`
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
	// ApplicationLeases is how many application leases are out: a release waits for them.
	ApplicationLeases int `json:"application_leases,omitempty"`
	// Lease is the duration of a lease from its renewal.
	Lease          cluster.Duration `json:"lease,omitempty"`
	SessionTimeout cluster.Duration `json:"session_timeout,omitempty"`
	// Elected is the node of the newest decision that this daemon has seen, made for Cause and Reason.
	Elected     string `json:"elected,omitempty"`
	ElectedSite string `json:"elected_site,omitempty"`
	ElectedTerm int64  `json:"elected_term,omitempty"`
	Cause       string `json:"cause,omitempty"`
	Reason      string `json:"reason,omitempty"`
	// Heir is the node that is elected next if the elected one is lost, as the elector has published it, and IsHeir
	// reports whether this daemon is.
	Heir   string `json:"heir,omitempty"`
	IsHeir bool   `json:"is_heir,omitempty"`
	// Holder is the holder of leadership; nil if this daemon does not know it, see [HolderChange].
	Holder *Holder `json:"holder,omitempty"`
	// Note says why nobody is elected although there should be a leader, if this daemon is the elector.
	Note string `json:"note,omitempty"`
	// AwaitsApproval is set if a person must approve the election that Note or Blocked is about.
	AwaitsApproval bool `json:"awaits_approval,omitempty"`
	// Proposal is the one that has not been answered, for hooks.on_proposal; nil for none.
	Proposal *cluster.Proposal `json:"-"`
	// Blocked says why a better member does not take over, if this daemon is the elector. It is empty if the only
	// reason is that failback is manual.
	Blocked string `json:"preemption_blocked,omitempty"`
	// Newer names the record whose format this daemon is too old for, so that it does not elect; empty if there is none.
	Newer string `json:"newer,omitempty"`
	// Drift says how the policy in the host's configuration differs from the one in force; empty if they are the same.
	Drift string `json:"drift,omitempty"`
	// SlotsDrift says the same of the number of slots and of per_node.
	SlotsDrift string `json:"slots_drift,omitempty"`
	// OpenTree reports whether anyone who can reach ZooKeeper can change the group's znodes, as this daemon last found.
	OpenTree bool `json:"open_tree,omitempty"`
	// Sites, Condition, Paused and PausedHard are what the elector knows; zero in other daemons.
	Sites      map[string]SiteCounts `json:"-"`
	Condition  Condition             `json:"-"`
	Paused     bool                  `json:"paused,omitempty"`
	PausedHard bool                  `json:"-"`
	// SnapshotAt is when the snapshot was read, RespondedAt when the last read began that a server has answered, UpdatedAt
	// when the loop updated this view; all on CLOCK_BOOTTIME.
	SnapshotAt  time.Duration `json:"-"`
	RespondedAt time.Duration `json:"-"`
	UpdatedAt   time.Duration `json:"-"`
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
)

// takesPart reports whether the host is a member of the group, as far as is known.
func (d Daemon) takesPart() bool { return d.Membership == "" || d.Membership == MembershipMember }

// SiteCounts counts the members of a site. Excluded are those of the ineligible ones that have strikes.
type SiteCounts struct{ Eligible, Ineligible, Excluded int }

// At returns the view with the ages and the remaining lease at a time of the host's CLOCK_BOOTTIME.
func (d Daemon) At(now time.Duration) Daemon {
	d.Age, d.LeaseRemaining, d.LastResponseAge = cluster.Duration(now-d.UpdatedAt), 0, 0
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

// State returns the phase, unless that is not known or the host is not a member: then it is stuck, connecting while
// there is no session, or the membership.
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

// EligibleMembers returns how many members are eligible, as far as an elector knows.
func (d Daemon) EligibleMembers() (n int) {
	for _, s := range d.Sites {
		n += s.Eligible
	}
	return n
}

// SeverityAt returns the severity of the group at a time, as far as an elector knows.
func (d Daemon) SeverityAt(now time.Time) Severity {
	c := d.Condition
	if d.EligibleMembers() < 2 {
		c.Problems = append(c.Problems, "nobody could take over")
	}
	if d.PausedHard {
		c.HardPause = "paused hard"
	}
	severity, _ := c.Judge(now)
	return severity
}

// CheckInterval is how often a daemon reads from ZooKeeper if nothing happens.
const CheckInterval = 10 * time.Second

// ViewInterval returns how often a loop updates its view if nothing happens.
func ViewInterval(session time.Duration) time.Duration { return min(session/4, 5*time.Second) }

// The checks below return nil for yes and otherwise the reason for no. What is stale or unknown is no.

// CheckLoop returns an error if the event loop is stuck: it has not updated its view for two intervals. Between
// sessions there is no loop, and nothing that it could be late for.
func (d Daemon) CheckLoop() error {
	if !d.Loop {
		return nil
	}
	age, limit := time.Duration(d.Age), max(time.Second, 2*ViewInterval(time.Duration(d.SessionTimeout)))
	if d.UpdatedAt == 0 || age < 0 || age > limit {
		return fmt.Errorf("the event loop has been stuck for %s, more than %s", age.Round(time.Millisecond), limit)
	}
	return nil
}

// CheckRegistered returns an error unless the daemon is a member of the group.
func (d Daemon) CheckRegistered() error {
	switch err := d.CheckLoop(); {
	case err != nil:
		return err
	case !d.takesPart():
		return d.membershipError()
	case !d.Session:
		return errors.New("there is no session")
	case d.Phase == "ended":
		return errors.New("the session is over")
	case d.Incarnation == "":
		return errors.New("this daemon is not registered")
	}
	return nil
}

func (d Daemon) membershipError() error {
	text := "this host is not a member of the group, but " + d.Membership
	if d.MembershipReason != "" {
		text += ": " + d.MembershipReason
	}
	return errors.New(text)
}

// CheckReady returns an error unless the daemon is a member and its knowledge of the group is fresh.
func (d Daemon) CheckReady() error {
	limit := CheckInterval + time.Duration(d.SessionTimeout)
	switch err := d.CheckRegistered(); {
	case err != nil:
		return err
	case !d.Connected:
		return errors.New("no ZooKeeper server is connected")
	case d.SnapshotAt == 0:
		return errors.New("the group has not been read yet")
	case d.RespondedAt == 0 || time.Duration(d.LastResponseAge) > limit:
		return fmt.Errorf("ZooKeeper has not answered for %s, more than %s",
			time.Duration(d.LastResponseAge).Round(time.Millisecond), limit)
	}
	return nil
}

// CheckHealthy returns an error unless the daemon is a member and its host passes its own health probe.
func (d Daemon) CheckHealthy() error {
	switch err := d.CheckRegistered(); {
	case err != nil:
		return err
	case d.Unhealthy != "":
		return errors.New("this host is unhealthy: " + d.Unhealthy)
	}
	return nil
}

// CheckReplica returns an error unless the daemon is a healthy standby and its knowledge of the group is fresh.
func (d Daemon) CheckReplica() error {
	switch err := d.CheckReady(); {
	case err != nil:
		return err
	case d.Phase != "standby":
		return errors.New("this daemon is " + d.Phase + ", not a standby")
	}
	return d.CheckHealthy()
}

// CheckLeader returns an error unless the daemon is the READY leader and its lease is valid. Only the lease is proof; a
// connection is not.
func (d Daemon) CheckLeader() error {
	switch err := d.CheckRegistered(); {
	case err != nil:
		return err
	case d.Phase != "leading":
		return errors.New("this daemon is " + d.Phase + ", not leading")
	case d.LeaseRemaining <= 0:
		return errors.New("the lease is over")
	}
	return nil
}

// Leads reports whether the daemon is the READY leader and its lease is valid.
func (d Daemon) Leads() bool { return d.CheckLeader() == nil }

// Host has the views of all groups of one daemon.
type Host []Daemon

// State returns the state of a daemon with several groups: stuck, connecting while there is no session, or running.
func (h Host) State() string {
	if h.CheckLoops() != nil {
		return "stuck"
	}
	for _, d := range h {
		if d.Session {
			return "running"
		}
	}
	return "connecting"
}

// Age returns the age of the oldest view. A group whose loop does not run has no new view, so it counts only if none
// runs.
func (h Host) Age() cluster.Duration {
	var oldest, oldestLoop cluster.Duration
	for _, d := range h {
		oldest = max(oldest, d.Age)
		if d.Loop {
			oldestLoop = max(oldestLoop, d.Age)
		}
	}
	return cmp.Or(oldestLoop, oldest)
}

// CheckLoops returns an error if the event loops of all groups are stuck. If only some are, a restart of the daemon
// would harm the other groups; the daemon restarts such a loop by itself.
func (h Host) CheckLoops() error {
	var first error
	for _, d := range h {
		err := d.CheckLoop()
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	if len(h) > 1 {
		return fmt.Errorf("in all %d groups %w", len(h), first)
	}
	return first
}

// maxNamed is the number of groups that an error names.
const maxNamed = 5

// CheckReady returns an error unless the daemon is ready in each of its groups, and the names of the groups in which it
// is not.
func (h Host) CheckReady() (notReady []string, err error) {
	var reasons []string
	for _, d := range h {
		if err := d.CheckReady(); err != nil {
			notReady = append(notReady, d.Group)
			if len(reasons) < maxNamed {
				reasons = append(reasons, d.Group+": "+err.Error())
			}
		}
	}
	if len(notReady) == 0 {
		return nil, nil
	}
	text := fmt.Sprintf("not ready in %d of %d groups: %s", len(notReady), len(h), strings.Join(reasons, "; "))
	if more := len(notReady) - len(reasons); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return notReady, errors.New(text)
}

// Summary is a group in a list of the groups of one daemon, as that daemon sees it.
type Summary struct {
	Group string `json:"group"`
	Root  string `json:"root"`
	// State is that of this daemon in the group, see [Daemon.State].
	State            string `json:"state"`
	Membership       string `json:"membership,omitempty"`
	MembershipReason string `json:"membership_reason,omitempty"`
	// Leads reports whether this daemon leads the group, Elector whether it is its elector.
	Leads   bool `json:"leads"`
	Elector bool `json:"elector"`
	// Elected is the node of the newest decision, of Term.
	Elected     string `json:"elected,omitempty"`
	ElectedSite string `json:"elected_site,omitempty"`
	Term        int64  `json:"term,omitempty"`
	// Holder is the holder of leadership; nil if this daemon does not know it, see [HolderChange].
	Holder   *Holder          `json:"holder,omitempty"`
	Paused   bool             `json:"paused,omitempty"`
	Problems []string         `json:"problems,omitempty"`
	Age      cluster.Duration `json:"age"`
}

// Summary returns the view in short.
func (d Daemon) Summary() Summary {
	return Summary{
		Group: d.Group, Root: d.Root, State: d.State(), Membership: d.Membership, MembershipReason: d.MembershipReason,
		Leads: d.Leads(), Elector: d.Elector, Elected: d.Elected, ElectedSite: d.ElectedSite, Term: d.LatestTerm(),
		Holder: d.Holder, Paused: d.Paused, Problems: d.Problems(), Age: d.Age,
	}
}

// Problems returns what is wrong with the group, as far as this daemon knows.
func (d Daemon) Problems() []string {
	var all []string
	add := func(text, detail string) {
		if detail != "" {
			all = append(all, text+detail)
		}
	}
	if err := d.CheckLoop(); err != nil {
		all = append(all, err.Error())
	}
	if !d.takesPart() && d.MembershipReason != "" {
		all = append(all, d.membershipError().Error())
	}
	add("", d.Note)
	if d.AwaitsApproval && d.Note == "" {
		add("", d.Blocked)
	}
	add("a process of the work cannot be killed: ", d.Unkillable)
	add("this daemon is too old for a record: ", d.Newer)
	add("this host is unhealthy: ", d.Unhealthy)
	if d.WatchdogDevice != nil && !d.WatchdogDevice.Required { // else the host is unhealthy
		add("the watchdog device is not used: ", d.WatchdogDevice.Reason)
	}
	all = append(all, d.Failsafe.Problems()...)
	add("", d.Drift)
	add("", d.SlotsDrift)
	return all
}

// WatchdogDevice is the device that resets a host whose work outlives its lease, as its daemon sees it.
type WatchdogDevice struct {
	Device string `json:"device"`
	// State is one of the constants below; Reason says why the device is unusable.
	State    string `json:"state"`
	Required bool   `json:"required,omitempty"`
	Identity string `json:"identity,omitempty"`
	// Timeout is that of the device. ResetAfterLease is how long after the end of a lease the host is reset at the latest.
	Timeout         cluster.Duration `json:"timeout,omitempty"`
	ResetAfterLease cluster.Duration `json:"reset_after_lease,omitempty"`
	Reason          string           `json:"reason,omitempty"`
	// Warnings are the weaknesses of a device that can be used.
	Warnings []string `json:"warnings,omitempty"`
}

// The values of [WatchdogDevice.State].
const (
	// DeviceReady: it was checked, and is armed when work starts.
	DeviceReady = "ready"
	// DeviceArmed: it resets the host unless the guard goes on to pet it.
	DeviceArmed = "armed"
	// DeviceUnusable: it does not protect, see Reason.
	DeviceUnusable = "unusable"
)
