// Package losses computes how long a group has no leader after a loss: its leader's daemon, the host, the network,
// ZooKeeper. It also says which losses a configuration does not survive. All of it follows from the configuration;
// nothing is measured.
//
// Each figure counts from the loss until the next leader may start its work, and is an upper bound under these
// conditions: there is one loss at a time, and it cuts no other member off from ZooKeeper; another member is eligible;
// all hosts have the same session timeout, of at least three ticks of the servers, and the same lease; and the group is
// not paused hard. With two ticks, a session may end just before another member would take over, so that the lease wait
// comes on top. What the figures do not contain are the round trips to ZooKeeper, which take milliseconds, the program
// that ranks the members (policy type exec), and the takeover: the start of the work takes as long as the work needs,
// at most the takeover timeout (hooks.timeout and child.ready.timeout) before another member is tried.
package losses

import (
	"fmt"
	"strings"
	"time"

	"zkelectd/internal/cluster"
)

// Config is what the figures follow from.
type Config struct {
	Budget cluster.Budget
	// LostAfter is how long a leader must have been silent before another member takes over; 0 for as early as is safe.
	LostAfter time.Duration
	// Hooks is how many hooks the guard runs after the death of its daemon; each of them may take K.
	Hooks int
	// Fencing is how long it may take to fence one host, with all levels, 0 if that is not required. SkipWait is set
	// if the lease wait ends with it.
	Fencing  time.Duration
	SkipWait bool
	// DeviceUsed is set if there may be a watchdog device that fits the lease, DeviceRequired if no host leads
	// without it.
	DeviceUsed, DeviceRequired bool
	// Failsafe is set if a leader works on while ZooKeeper is away, FailsafeMax for how long after the last write
	// that ZooKeeper has acknowledged; 0 for as long as it takes.
	Failsafe    bool
	FailsafeMax time.Duration
	// Alone is set if it is known that no other member may lead, Confirm if a person may have to approve the next one.
	Alone, Confirm bool
}

// Kind is what is lost.
type Kind string

// The losses.
const (
	Daemon     Kind = "daemon"
	Host       Kind = "host"
	Partition  Kind = "partition"
	ZooKeeper  Kind = "zookeeper"
	StandStill Kind = "stand_still"
)

// Words describes what is lost, for people.
func (k Kind) Words() string {
	switch k {
	case Daemon:
		return "the leader's daemon dies"
	case Host:
		return "its host is lost"
	case Partition:
		return "it is cut off from ZooKeeper"
	case ZooKeeper:
		return "all ZooKeeper servers are lost"
	case StandStill:
		return "its host stands still, and may go on later"
	}
	return string(k)
}

// Outcome is what becomes of the group.
type Outcome string

// The outcomes.
const (
	// NextLeader: another leader may start its work after Within.
	NextLeader Outcome = "next_leader"
	// SameLeader: the leader works on.
	SameLeader Outcome = "same_leader"
	// NoLeader: nobody leads until what was lost is back, and Within after that.
	NoLeader Outcome = "no_leader"
	// TwoLeaders: another leader may start its work after Within, and nothing makes sure that the old work has ended by
	// then (S1).
	TwoLeaders Outcome = "two_leaders"
)

// Part is one of the times that add up to [Loss.Within], or the longer one of two.
type Part struct {
	What string           `json:"what"`
	For  cluster.Duration `json:"for"`
}

// Loss says what becomes of the group after a loss.
type Loss struct {
	Kind    Kind    `json:"loss"`
	Outcome Outcome `json:"outcome"`
	// Within counts from the loss, with [NoLeader] from its end; 0 with [SameLeader].
	Within cluster.Duration `json:"within"`
	Parts  []Part           `json:"parts,omitempty"`
	// Why says what the outcome rests on, or why the loss is not survived.
	Why string `json:"why"`
}

// Survived reports whether the group has one leader again, without anybody's help.
func (l Loss) Survived() bool { return l.Outcome == NextLeader || l.Outcome == SameLeader }

// Time says how long it takes.
func (l Loss) Time() string {
	within := round(time.Duration(l.Within)).String()
	switch l.Outcome {
	case SameLeader:
		return "0s"
	case NoLeader:
		return within + " after it is back"
	}
	return within
}

// Sum says how the time adds up.
func (l Loss) Sum() string {
	var parts []string
	for _, p := range l.Parts {
		parts = append(parts, fmt.Sprintf("%s %s", p.What, round(time.Duration(p.For))))
	}
	return strings.Join(parts, " + ")
}

// round rounds to what people read.
func round(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }

// Table returns what becomes of a group with this configuration after each loss.
func Table(c Config) []Loss {
	return []Loss{c.daemon(), c.host(), c.partition(), c.zookeeper(), c.standStill()}
}

// loss returns a loss whose time is the sum of the parts; those of no time are left out.
func loss(k Kind, o Outcome, why string, parts ...Part) Loss {
	l := Loss{Kind: k, Outcome: o, Why: why}
	for _, p := range parts {
		if p.For > 0 {
			l.Within += p.For
			l.Parts = append(l.Parts, p)
		}
	}
	return l
}

// daemon: the guard, which sees the death at once, kills the work within K. Then it runs the pending hooks, each for at
// most K, one after another, and releases, so no lease is waited for (docs/protocol.md, Transactions: FINAL). If the
// group has no other member, the guard starts the daemon again, and it is elected. If the work can't be killed or a
// hook fails, the guard does not release: then the loss is like that of the host.
func (c Config) daemon() Loss {
	b := c.Budget
	return loss(Daemon, NextLeader, "the guard kills the work, and releases; if it cannot, this is like the "+
		"loss of the host",
		Part{"kill", cluster.Duration(b.Kill)}, Part{"hooks", cluster.Duration(time.Duration(c.Hooks) * b.Kill)})
}

// silence: a deputy takes over from a leader that has not renewed its lease for W, counted from a read after its last
// renewal, which was before the loss (docs/protocol.md, TAKE). Then the candidate has nothing to wait for. Only fencing
// that is required comes after that.
func (c Config) silence() []Part {
	parts := []Part{{"end of the lease", cluster.Duration(c.Budget.LeaseWait)}}
	if c.LostAfter > c.Budget.LeaseWait {
		parts = []Part{{"election.lost_after", cluster.Duration(c.LostAfter)}}
	}
	if c.Fencing > 0 {
		parts = append(parts, Part{"fencing", cluster.Duration(c.Fencing)})
	}
	return parts
}

// expiry: without a deputy the session ends, at most a tick after T, counted from the last that a server has heard from
// the client. Then a candidate acquires, and waits for W before it starts its work. Fencing runs at the same time as W,
// and is bounded by its limit: with required the work starts when both are over, and with skip_wait as well when the
// host is fenced, so W does not matter. Without required a fencing that fails costs nothing, and one that succeeds can
// only make it shorter.
func (c Config) expiry() []Part {
	wait := Part{"lease wait", cluster.Duration(c.Budget.LeaseWait)}
	if c.Fencing > 0 && (c.SkipWait || c.Fencing > c.Budget.LeaseWait) {
		wait = Part{"fencing", cluster.Duration(c.Fencing)}
	}
	return []Part{{"end of the session", cluster.Duration(c.Budget.SessionEnd())}, wait}
}

// proof says what S1 rests on if a host that is lost might work on.
func (c Config) proof() string {
	if c.Fencing > 0 {
		return "rests on fencing, and on the lease; nobody leads if no host can fence it"
	}
	return "rests on the lease, which the lost host's guard enforces"
}

// host: a deputy takes over. In failsafe mode it needs a right to (docs/protocol.md, Failsafe): what a member has
// promised lasts W, and it promises nothing while ZooKeeper answers it. So that adds nothing.
func (c Config) host() Loss {
	why := c.proof()
	if c.Failsafe {
		why += "; nobody leads if all members that may veto are lost as well"
	}
	return c.after(Host, why)
}

// partition: as for the host. The leader's work ends with its lease, D after the last RENEW. In failsafe mode the
// members that reach ZooKeeper refuse to promise anything.
func (c Config) partition() Loss {
	why := c.proof()
	switch {
	case c.Failsafe && c.FailsafeMax > 0:
		why += fmt.Sprintf("; if the leader is cut off together with all members that have promised, it works on for "+
			"at most %s, and nobody else leads meanwhile", c.FailsafeMax)
	case c.Failsafe:
		why += "; if the leader is cut off together with all members that have promised, it works on, and nobody else leads"
	}
	return c.after(Partition, why)
}

// after is the loss of a leader that renews its lease no more.
func (c Config) after(k Kind, why string) Loss {
	if c.Alone {
		return loss(k, NoLeader, "no other member may lead", c.expiry()...)
	}
	if c.Confirm {
		why += "; where policy.confirm is true, nobody leads before a person approves it or policy.confirm_after is over"
	}
	return loss(k, NextLeader, why, c.silence()...)
}

// zookeeper: without failsafe mode the leader stops its work before its lease ends, D after the last RENEW at the
// latest. When a quorum of the servers is back, it counts every session from the beginning. A leader's host that
// reaches the servers before the session ends releases at once. Deputies give it the time for that, and take over when
// they have reached the servers themselves, before the session ends. In failsafe mode the leader works on while all
// members that have promised answer.
func (c Config) zookeeper() Loss {
	limit := ""
	switch {
	case !c.Failsafe:
		return loss(ZooKeeper, NoLeader, fmt.Sprintf("the leader stops within its lease, %s, and nobody leads until "+
			"ZooKeeper is back", round(c.Budget.Lease)), c.expiry()...)
	case c.Alone:
		return loss(ZooKeeper, NoLeader, "no other member can promise to let nobody take over: the leader stops "+
			"within its lease", c.expiry()...)
	case c.FailsafeMax > 0:
		limit = fmt.Sprintf(", for at most %s", c.FailsafeMax)
	}
	return loss(ZooKeeper, SameLeader, "the leader works on"+limit+" while every other member answers it; it stops "+
		"within its lease if one does not")
}

// standStill: to the others this is a lost host. But its guard stands still, too: when the host goes on, its work runs
// until the guard is scheduled, and without that for as long as only the guard stands still. A device resets the host
// within K after the end of the lease, so before a successor starts its work (cluster.Reset); required fencing switches
// it off before that.
func (c Config) standStill() Loss {
	var why string
	switch fenced := c.Fencing > 0; {
	case fenced && c.DeviceRequired:
		why = "the watchdog device resets the host, and fencing switches it off"
	case fenced:
		why = "fencing switches the host off; nobody leads if no host can fence it"
	case c.DeviceRequired:
		why = "the watchdog device resets the host; not a virtual machine that is paused with its device"
	case c.DeviceUsed:
		return c.unsafe("two leaders may work if the watchdog device cannot be used: watchdog_device.mode is " +
			"automatic, not required")
	default:
		return c.unsafe("two leaders may work: nothing ends the old work, as watchdog_device.mode or fencing.required would")
	}
	return c.after(StandStill, why)
}

// unsafe is a host that stands still while nothing ends its work. Alone in its group, it has no successor that could
// work as well.
func (c Config) unsafe(why string) Loss {
	l := c.after(StandStill, why)
	if l.Outcome == NextLeader {
		l.Outcome = TwoLeaders
	}
	return l
}

// Bound returns the longest time of any loss with a session timeout, while ZooKeeper answers: the session ends, and
// then the lease wait, or the fencing of a host if that takes longer. It is 0 if no lease fits the timeout.
func Bound(session, fencing time.Duration) time.Duration {
	b, err := cluster.NewBudget(session, 0, 0)
	if err != nil {
		return 0
	}
	return b.SessionEnd() + max(b.LeaseWait, fencing)
}
