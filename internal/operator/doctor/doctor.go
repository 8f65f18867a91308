// Package doctor judges what was found on a host, in ZooKeeper and in the groups: each check is ok, a warning or a
// failure, with what to do. It looks at nothing itself: the caller gathers [Facts]. What could not be looked at is
// never ok.
package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/suggest"
)

// Result is the result of a check.
type Result string

// The results. Fail is for what does not work, Warn for what works and may not later, and for what could not be
// checked.
const (
	OK   Result = "ok"
	Warn Result = "warn"
	Fail Result = "fail"
)

// Finding is the result of one check.
type Finding struct {
	Result Result `json:"result"`
	// Check is what was checked, Object which of several: a server or a group; empty if there is one only.
	Check  string `json:"check"`
	Object string `json:"object,omitempty"`
	// Seen is what was seen, Advice what to do; nothing if Advice is empty.
	Seen   string `json:"seen"`
	Advice string `json:"advice,omitempty"`
}

// What returns the check with its object.
func (f Finding) What() string { return strings.TrimSpace(f.Check + " " + f.Object) }

// String returns what was seen and what to do.
func (f Finding) String() string {
	if f.Advice == "" {
		return f.Seen
	}
	return f.Seen + "; " + f.Advice
}

// Diagnose returns the findings, those about the whole host and about ZooKeeper first.
func Diagnose(f Facts) []Finding {
	all := f.Config.findings()
	if len(f.Config.Errors) > 0 && !f.Config.Usable {
		return append(all, unknown("other checks", "", errors.New("the configuration is invalid"),
			"correct the configuration, and run this again"))
	}
	var servers []Server
	for _, s := range f.Servers {
		if s.isReachedOtherwise(f.Servers) {
			all = append(all, Finding{Warn, "server", s.Name, "cannot be reached from here: " + s.Err.Error(),
				s.Host + " serves sessions at another address; remove this one from the name, unless other hosts need it"})
			continue
		}
		servers, all = append(servers, s), append(all, s.finding(f.Session.Asked))
	}
	all = append(all, ensemble(servers, f.Session)...)
	all = append(all, f.Session.finding(), f.Write.finding(f.Session.Err), f.Write.clock(), f.clocks())
	all = append(all, f.Daemon.findings(f.Version)...)
	all = append(all, f.Host.findings()...)
	for _, g := range f.Groups {
		all = append(all, g.findings(f.Session.Base, f.Version)...)
	}
	return all
}

// Worst returns the worst result of the findings.
func Worst(all []Finding) Result {
	worst := OK
	for _, f := range all {
		if f.Result == Fail || f.Result == Warn && worst == OK {
			worst = f.Result
		}
	}
	return worst
}

func good(check, object, format string, args ...any) Finding {
	return Finding{Result: OK, Check: check, Object: object, Seen: fmt.Sprintf(format, args...)}
}

// unknown is the finding for what could not be looked at.
func unknown(check, object string, err error, advice string) Finding {
	return Finding{Result: Warn, Check: check, Object: object, Seen: "could not be checked because " + err.Error(),
		Advice: advice}
}

// round makes a measured time readable.
func round(d time.Duration) time.Duration {
	switch abs := max(d, -d); {
	case abs >= 10*time.Second:
		return d.Round(time.Second)
	case abs >= time.Second:
		return d.Round(100 * time.Millisecond)
	case abs >= 10*time.Millisecond:
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}

// listed names the first of many.
func listed(all []string) string { return suggest.List(all, 5) }

// plural returns a number with the word for one or for several.
func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// orUnknown returns a text for what may be empty.
func orUnknown(text string) string { return cmp.Or(text, "unknown") }

// Facts are what was found. An error in them says why something could not be looked at.
type Facts struct {
	// Version is that of this binary.
	Version string
	Config  Config
	Servers []Server
	Session Session
	Write   Write
	Daemon  Daemon
	Host    Host
	Groups  []Group
	// Clocks are those of the members of all groups; ClocksErr is why some of them are not known.
	Clocks    []Clock
	ClocksErr error
}

// Config is what reading the configuration has led to.
type Config struct {
	// File is the configuration file; empty if there is none. Groups is the number of groups.
	File   string
	Groups int
	// Errors keep the daemon from starting, or from starting a group. Usable is set if the other checks can go on all
	// the same.
	Errors   []error
	Usable   bool
	Warnings []string
}

// Server is one server of the ensemble.
type Server struct {
	Name string
	// Host is the server as configured. Its name may have several addresses, of which this is one, of IPv6 or of IPv4.
	Host string
	IPv6 bool
	// Err is why the server would not serve this host.
	Err error
	// Connect is how long it took to connect, Open and Close to open and close a session, in which a quorum takes part.
	Connect, Open, Close time.Duration
	Granted              time.Duration
	// Version and Mode are empty if StatusErr says why they are not known.
	Version, Mode string
	StatusErr     error
}

// Session is a session like that of the daemon.
type Session struct {
	Err error
	// Asked is zookeeper.session_timeout, Granted what the server has granted. Base is what leases are based on.
	Asked, Granted, Base time.Duration
	// Server is the one that was read. Foreign are those that say that they are of another ensemble. ForeignErr is why
	// they could not be asked, as none is if the server opens no further session.
	Server     string
	Foreign    []string
	ForeignErr error
}

// Write is a write that a quorum of the servers has accepted.
type Write struct {
	// Err is why it failed; Denied is set if the reason is a missing permission, and Absent if there was no group to
	// write to.
	Err            error
	Denied, Absent bool
	// Sent and Answered are by this host's clock, Time by that of the server that ordered the write.
	Sent, Answered, Time time.Time
}

// Daemon is the daemon of this host.
type Daemon struct {
	// Node is its id.
	Node string
	// Err is why it is not known whether it runs. Otherwise it runs if Pid is not 0; Absent is why it does not.
	Err    error
	Pid    int
	Absent string
	// Answer is why a daemon that answers at the endpoint is not registered; empty if none does.
	Answer string
	// Version is what it has registered with.
	Version string
	// NotIn names the groups of the configuration in which it is not registered.
	NotIn []string
	// Endpoint is http.listen, empty if it is not set. EndpointErr is why it does not answer that the daemon is ready.
	Endpoint    string
	EndpointErr error
}

// Limits are limits of a process; Unlimited for none.
type Limits struct {
	// Locked is how much memory it may lock, Files how many files it may open, Processes how many its user may have.
	Locked, Files, Processes uint64
}

// Unlimited stands for no limit.
const Unlimited = ^uint64(0)

// Host is what the host gives to the guard of the daemon, the process that must be able to kill.
type Host struct {
	// Err is why it could not be looked at; then the rest is zero.
	Err error
	// Containment is child.containment. Delegated is set if the guard may create control groups; DelegatedErr is why
	// that is not known.
	Containment  string
	Delegated    bool
	DelegatedErr error
	// InUse is the containment that the daemon reports; empty if it reports none. Unkillable is what it could not kill.
	InUse, Unkillable string
	Limits            Limits
	LimitsErr         error
	// CanLock is set if the guard may lock memory without a limit, Locked is how much it has locked, in bytes.
	CanLock bool
	Locked  uint64
	// Groups is how many groups this daemon has.
	Groups int
	// Tasks is how many tasks the control group has, TasksMax how many it may have; Unlimited for no limit.
	Tasks, TasksMax uint64
	TasksErr        error
	// Realtime is set if the guard may have a real-time priority. Scheduler is the policy of the guard, such as SCHED_RR.
	Realtime     bool
	Scheduler    string
	SchedulerErr error
	// WatchdogDevice is what the daemon reports of its watchdog device; nil if none is configured.
	WatchdogDevice *status.WatchdogDevice
}

// Group is one group of this host.
type Group struct {
	Name string
	// Err is why the group could not be read; NotJoined is set if no daemon has joined it yet, and Denied if its ACL
	// does not permit it.
	Err               error
	NotJoined, Denied bool
	// RootErr is why this user could not create the root of a group that no daemon has joined yet.
	RootErr error
	// Lease is election.lease. Stop is the stop timeout of the work, 0 for none.
	Lease, Stop time.Duration
	// Programs is how many programs the configuration names, ProgramErrs what this host does not have, ProgramsErr why
	// it could not be checked. Reported is what the daemon of this host has found, which runs as another user.
	Programs    int
	ProgramErrs []error
	ProgramsErr error
	Reported    []string
	// OpenTree is set if anyone may change the group's znodes, Mismatched are the znodes with another ACL than the
	// configuration says, LockedOut are members whose credentials have no access. ACLErr is why the ACLs could not be
	// read.
	OpenTree   bool
	Mismatched []string
	LockedOut  []string
	ACLErr     error
	View       status.Group
	// Node is the id of this host. Failsafe is failsafe mode as its daemon sees it, FailsafeErr why that is not known;
	// both are nil if the daemon takes no part in it.
	Node        string
	Failsafe    *status.Failsafe
	FailsafeErr error
	// Eligible is how many members can lead under the policy in force; Leaderless names the slots without a READY
	// leader, of Slots, and Severity is that of the worst slot.
	Eligible   int
	Leaderless []string
	Slots      int
	Severity   status.Severity
	Members    []Member
	// Policy says which policy is in force; Drift how the configuration of this host differs from it. PolicyInGroup is
	// set if that has none (policy.source).
	Policy        string
	Drift         []string
	PolicyInGroup bool
}

// Member is a member of a group.
type Member struct {
	Node, Version string
	// PolicyInFile is set if its configuration has a policy, and PolicyDrift if that is not the one in force.
	PolicyInFile, PolicyDrift bool
}

// Clock is the clock of a member. Ahead is by how much it was ahead of that of the ZooKeeper server when the member
// registered.
type Clock struct {
	Node  string
	Ahead time.Duration
}
