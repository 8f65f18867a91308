package cluster

import (
	"time"
)

// Node is the record of nodes/<id>: it describes the node and its daemon.
type Node struct {
	Header
	ID       string            `json:"id"`
	Site     string            `json:"site"`
	Priority int               `json:"priority"`
	Labels   map[string]string `json:"labels,omitempty"`
	// Weight is the node's share of leaderships in relation to other nodes, and MaxLeaders how many it may have; 0 for
	// 1 and for no limit.
	Weight     float64 `json:"weight,omitempty"`
	MaxLeaders int     `json:"max_leaders,omitempty"`
	// ForgetAfter is how long after the node has ceased to be a member the roster forgets it; 0 for never.
	ForgetAfter Duration `json:"forget_after,omitempty"`
	// Ineligible is the reason why the daemon itself says that it must not lead; empty if there is none.
	Ineligible string `json:"ineligible,omitempty"`
	// Leaving is the reason why the daemon is about to end its membership, which it then does in any case; empty if it
	// is not.
	Leaving string `json:"leaving,omitempty"`
	// Unhealthy is the result of the host's health probe while it fails; else empty.
	Unhealthy string `json:"unhealthy,omitempty"`
	// Queued is set while the takeover waits because the host starts the work of other groups.
	Queued bool `json:"queued,omitempty"`
	// Standby is the state of the node's promotable work; nil without.
	Standby *Standby `json:"standby,omitempty"`
	// Latency is the smoothed round-trip time of requests to ZooKeeper, in milliseconds, and Score the smoothed output
	// of the score probe; nil if not known.
	Latency *float64 `json:"latency_ms,omitempty"`
	Score   *float64 `json:"score,omitempty"`
	// Answer is the node's answer to the last roll call; nil before the first.
	Answer *Answer `json:"roll_call,omitempty"`
	// Host, PID, Boot and Started identify the process, for operators and for a restarted daemon that finds the
	// ephemeral of its own predecessor. Boot is the kernel's boot id, Started the start time of the process in clock
	// ticks.
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Boot    string `json:"boot,omitempty"`
	Started uint64 `json:"started,omitempty"`
	// Instance is the random id of this registration, see [NewInstance], which the name of its incarnation contains. A
	// session may register several times, one after another, and the owner of the znode does not tell them apart.
	Instance string `json:"instance,omitempty"`
	// LastTerm is the highest term that the daemon knew when it registered, see [LastTerm]; with slots, the highest of
	// all.
	LastTerm int64 `json:"last_term,omitempty"`
	// SessionTimeout is the negotiated session timeout.
	SessionTimeout Duration `json:"session_timeout"`
	API            string   `json:"api,omitempty"`
	// Failsafe is nil if the node takes no part in failsafe mode.
	Failsafe *FailsafeNode `json:"failsafe,omitempty"`
	// PolicyDigest is the [Rules.Digest] of the policy in its own configuration; empty if that has none.
	PolicyDigest string `json:"policy_digest,omitempty"`
	// Reloads counts reloads of the configuration. Refused is why the last one was rejected; otherwise Reloaded is what it
	// changed.
	Reloads  int64  `json:"reloads,omitempty"`
	Refused  string `json:"reload_refused,omitempty"`
	Reloaded string `json:"reloaded,omitempty"`
	// Pending lists the settings that differ in the configuration files and need a restart.
	Pending string `json:"restart_pending,omitempty"`
	// Problems are the reasons why this host could not start the leader-only work, or not run a hook or a probe, as it
	// found without starting any, at most [MaxProblems]; and why it cannot write its decision as the elector.
	Problems []string `json:"problems,omitempty"`
	Version  string   `json:"version,omitempty"`
	// ACL is the setting for the ACL of the znodes that it creates. Identities name the credentials that it presents to
	// ZooKeeper, as user and a short hash. OpenTree is set if anyone who can reach ZooKeeper may change the group's
	// znodes.
	ACL        string   `json:"acl,omitempty"`
	Identities []string `json:"identities,omitempty"`
	OpenTree   bool     `json:"open_tree,omitempty"`
	// Since is when the daemon registered, by its host's clock; for people.
	Since time.Time `json:"since"`
}

// MaxProblems bounds the problems of a node, and MaxProblem the length of each, in bytes.
const (
	MaxProblems = 5
	MaxProblem  = 300
)

// SpreadWeight returns the weight, also of a record that has no valid one.
func (n Node) SpreadWeight() float64 {
	if n.Weight > 0 {
		return min(max(n.Weight, MinWeight), MaxWeight)
	}
	return 1
}

// The limits of a node's weight.
const (
	MinWeight = 0.001
	MaxWeight = 1000
)

// Cause is the kind of reason for which a decision was made.
type Cause string

// The causes of an election.
const (
	CauseFirst      Cause = "first"      // there was no decision before
	CauseFailure    Cause = "failure"    // the elected daemon is gone
	CauseSilent     Cause = "silent"     // the elected daemon has not renewed its lease, or has not taken over
	CauseLapsed     Cause = "lapsed"     // the elected daemon released because ZooKeeper had not answered it
	CauseStopped    Cause = "stopped"    // the elected daemon was stopped on request, or released without a fault
	CauseGaveUp     Cause = "gave-up"    // the elected daemon released because its work or its lease failed
	CauseRevoked    Cause = "revoked"    // the elected daemon's leadership was revoked
	CauseOverdue    Cause = "overdue"    // the takeover took too long
	CausePreempt    Cause = "preempt"    // a better member preempted the leader
	CauseIneligible Cause = "ineligible" // the elected daemon is no longer eligible
	CauseUnhealthy  Cause = "unhealthy"  // the elected daemon's host fails its health probe
	CauseMove       Cause = "move"       // an operator moved leadership
	CauseDrain      Cause = "drain"      // an operator drained the leader's node or site
	CauseReelect    Cause = "reelect"    // an operator requested a reelection
	CauseRepair     Cause = "repair"     // the records were deleted or damaged
)

// Causes lists all causes.
var Causes = []Cause{
	CauseFirst, CauseFailure, CauseSilent, CauseLapsed, CauseStopped, CauseGaveUp, CauseRevoked, CauseOverdue,
	CausePreempt,
	CauseIneligible, CauseUnhealthy, CauseMove, CauseDrain, CauseReelect, CauseRepair,
}

// InPolicy returns the cause that policies see for this one. A policy need not know how a loss was found, so it sees
// failure for silent. It reports false for lapsed, which says nothing about the member: the cause before it stays.
func (c Cause) InPolicy() (seen Cause, ok bool) {
	switch c {
	case CauseSilent:
		return CauseFailure, true
	case CauseLapsed:
		return "", false
	}
	return c, true
}

// IsSiteFailure reports whether the last leader's site counts as failed by this cause.
func (c Cause) IsSiteFailure() bool {
	switch c {
	case CauseFailure, CauseSilent, CauseGaveUp, CauseRevoked, CauseOverdue, CauseUnhealthy:
		return true
	}
	return false
}

// StillLeads reports whether the elected daemon leads on until another one is elected.
func (c Cause) StillLeads() bool { return c == CauseIneligible || c == CauseUnhealthy }

// Elected is the record of leader/elected: the elector's decision (docs/protocol.md, Electing). Every write is a new
// term.
type Elected struct {
	Header
	Term        int64  `json:"term"`
	Node        string `json:"node"`
	Site        string `json:"site"`
	Incarnation string `json:"incarnation"`
	Cause       Cause  `json:"cause"`
	// Reason describes the cause.
	Reason string `json:"reason"`
	// Request is the number of the operator's request that it carries out, RequestedBy the operator; 0 and empty if
	// there is none.
	Request     int64  `json:"request,omitempty"`
	RequestedBy string `json:"requested_by,omitempty"`
	// By is the elector's incarnation.
	By string `json:"by"`
	// PreviousNode and PreviousSite are those of the decision before; empty in the first one.
	PreviousNode string `json:"previous_node,omitempty"`
	PreviousSite string `json:"previous_site,omitempty"`
	// Ranking has a verdict for each member, the best first, those that are not eligible last; in a large group only
	// for the first. RankingOmitted is how many were left out to keep the record small.
	Ranking        []Verdict   `json:"ranking"`
	RankingOmitted int         `json:"ranking_omitted,omitempty"`
	Exclusions     []Exclusion `json:"exclusions,omitempty"`
	PolicyRevision int64       `json:"policy_revision,omitempty"`
	// Circumstances are those of the ranking. While the decision is in force, members are ranked under the same ones.
	Circumstances Circumstances `json:"circumstances,omitzero"`
	// Preemptions are those that damping counts.
	Preemptions []Preemption `json:"preemptions,omitempty"`
	// Heir is the member that would be elected next if this one was lost; nil if the elector does not say, see
	// [Snapshot.NextLeader].
	Heir *Heir `json:"heir,omitempty"`
	// Deputies are the ids of the nodes that watch the leader's lease, in the order in which they take over from it,
	// see [Snapshot.Deputies].
	Deputies []string `json:"deputies,omitempty"`
	// Silent are the incarnations that have not renewed or taken over in time. None is elected before its node has
	// registered again.
	Silent []string `json:"silent,omitempty"`
	// Leaderless is how long no leader's work had run when it was made; nil if a member was READY.
	Leaderless *Gap `json:"leaderless,omitempty"`
	// Time is when it was made, by the elector's clock; for people.
	Time time.Time `json:"time"`
}

// RankedMembers returns how many members the group had when the decision was made. A forged record may make it
// negative.
func (e *Elected) RankedMembers() int { return len(e.Ranking) + e.RankingOmitted }

// Preemption is a term in which policy replaced a healthy leader. Time is when, by the elector's clock; for people.
type Preemption struct {
	Term int64     `json:"term"`
	Time time.Time `json:"time"`
}

// Circumstances describe what has led to an election (docs/protocol.md, Electing). A decision that only follows the
// policy keeps those of the decision before: otherwise it could reverse the ranking that it was made from (S3).
type Circumstances struct {
	Cause Cause `json:"cause,omitempty"`
	// Node and Site are those of the last leader.
	Node string `json:"node,omitempty"`
	Site string `json:"site,omitempty"`
	// Failed lists the sites at which leaders and candidates have failed since a member was last READY.
	Failed []string `json:"failed,omitempty"`
}

// Verdict is one member's place in a ranking.
type Verdict struct {
	Node        string `json:"node"`
	Site        string `json:"site,omitempty"`
	Incarnation string `json:"incarnation"`
	// Rank is 1 for the best member; 0 if the member is not eligible.
	Rank int `json:"rank"`
	// Reason is the reason for the rank, or for not being eligible.
	Reason string `json:"reason"`
	// Answer is the member's answer to the roll call for this decision; nil if there was none, or if the member has not
	// answered.
	Answer *Answer `json:"roll_call,omitempty"`
}

// FenceState is the state of the last leadership.
type FenceState string

// The states of the fence.
const (
	FenceHeld     FenceState = "HELD"     // acquired, taking over
	FenceReady    FenceState = "READY"    // leading
	FenceReleased FenceState = "RELEASED" // released with the child dead and no lease wait left
	FenceUnclean  FenceState = "UNCLEAN"  // released before the lease wait for an earlier holder was over
	FenceRevoked  FenceState = "REVOKED"  // revoked by the elector: the holder's lease may still be running
	FenceSilent   FenceState = "SILENT"   // taken from a holder that has not renewed: its lease is over
)

// Fence is the record in the data of leader: who last held leadership, in which term, and how it ended.
type Fence struct {
	Header
	Term        int64      `json:"term"`
	Node        string     `json:"node"`
	Site        string     `json:"site"`
	Incarnation string     `json:"incarnation"`
	State       FenceState `json:"state"`
	// Session is the id of the session that acquired; 0 if it is not known.
	Session int64 `json:"session,omitempty"`
	// LeaseZnode is the lease znode of that session, which every RENEW of this holder advances; empty if it has none.
	LeaseZnode string `json:"lease,omitempty"`
	// Host and API are those of the node, for its successor.
	Host string `json:"host,omitempty"`
	API  string `json:"api,omitempty"`
	// Owed is the lease wait for earlier holders that this holder has not completed. Earlier lists those that are
	// known; another wait may be owed to nobody that is known.
	Owed    Duration        `json:"owed,omitempty"`
	Earlier []EarlierHolder `json:"earlier,omitempty"`
	// Takeover is how long this holder may take to start its work, by its own configuration, without the waits above
	// and below.
	Takeover Duration `json:"takeover,omitempty"`
	// FencingLimit is how long this holder may take to fence the earlier ones before its work, if it must; else 0.
	// Fencing has its attempts.
	FencingLimit Duration        `json:"fencing_limit,omitempty"`
	Fencing      []FencingResult `json:"fencing,omitempty"`
	// LeaseWait is W for this holder: how long a successor waits unless its end is known to be clean.
	LeaseWait Duration `json:"lease_wait"`
	// Kill (K) and RevokeTimeout bound how long the elector waits before it revokes: K for a candidate that is overdue,
	// RevokeTimeout (stop timeout + D + K) for a leader that was replaced.
	Kill          Duration `json:"kill"`
	RevokeTimeout Duration `json:"revoke_timeout"`
	// Reason is why the leadership ended. Requested is set if that was requested: then it is no strike.
	Reason    string `json:"reason,omitempty"`
	Requested bool   `json:"requested,omitempty"`
	// Stopping is the holder's incarnation if it ends its membership as well, and not by a fault: until then it is not
	// elected again. One that a holder of an older build has kept from an earlier holder says nothing about its own.
	Stopping string `json:"stopping,omitempty"`
	// Idle is how long no leader's work had run when this was written, and in READY, before that; nil if that is not
	// known.
	Idle *Gap `json:"idle,omitempty"`
	// Led is set if a leadership that has ended had been READY.
	Led bool `json:"led,omitempty"`
	// Lapsed is set if the holder released because ZooKeeper had not answered it in time: that is no strike.
	Lapsed bool `json:"lapsed,omitempty"`
	// Lost is set if FINAL released in place of a holder that has died or lost its session, once its work was dead.
	Lost bool `json:"lost,omitempty"`
	// Wait describes how long, and why, this holder waits, or has waited, before its work; empty if it need not.
	Wait string `json:"wait,omitempty"`
	// Failsafe is nil if the holder never works on without ZooKeeper. REVOKE keeps it; nobody promises anything after
	// RELEASE.
	Failsafe *Failsafe `json:"failsafe,omitempty"`
	Time     time.Time `json:"time"`
}

// CurrentState is the state of leader/current.
type CurrentState string

// The states of leader/current.
const (
	CurrentProgress CurrentState = "PROGRESS"
	CurrentReady    CurrentState = "READY"
)

// MaxValue bounds [Current].Value, in bytes: every member keeps it in memory.
const MaxValue = 1024

// Current is the record of leader/current, the leader's ephemeral.
type Current struct {
	Header
	Term        int64        `json:"term"`
	Node        string       `json:"node"`
	Site        string       `json:"site"`
	Incarnation string       `json:"incarnation"`
	State       CurrentState `json:"state"`
	API         string       `json:"api,omitempty"`
	// Cause and Reason are those of the decision. PreviousLeader is the node that held leadership before, if it is
	// known, and PreviousClean is set if there was no lease of it to wait for. All are for people, and for hooks on
	// every host.
	Cause          Cause  `json:"cause,omitempty"`
	Reason         string `json:"reason,omitempty"`
	PreviousLeader string `json:"previous_leader,omitempty"`
	PreviousClean  bool   `json:"previous_clean,omitempty"`
	// Value is what the work publishes with its leadership, such as its address; empty unless it is READY.
	Value string `json:"value,omitempty"`
	// Time is when it entered the state, by its host's clock; for people.
	Time time.Time `json:"time"`
}

// Exclusion is a strike against a node, kept in the elected record so that every elector inherits it.
type Exclusion struct {
	Node    string `json:"node"`
	Strikes int    `json:"strikes"`
	// For is how long the node is excluded. Each member counts from when it first saw the strike.
	For Duration `json:"for"`
	// Expired is set once the exclusion has ended or was suspended; the strikes still count. Suspended is set until For
	// is over if it was suspended, because nobody was left who had not failed.
	Expired   bool `json:"expired,omitempty"`
	Suspended bool `json:"suspended,omitempty"`
	// Term is the term of the last strike.
	Term   int64     `json:"term"`
	Reason string    `json:"reason"`
	Time   time.Time `json:"time"`
	// Since is the time of the first strike since the node last had none that counted.
	Since time.Time `json:"since,omitzero"`
}
