package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// FormatVersion is the "v" that this build writes, and the newest that it reads.
const FormatVersion = 1

// Duration is a span of time that records show as text, such as "2.7s".
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err == nil && v < 0 {
		err = errors.New("negative duration")
	}
	*d = Duration(v)
	return err
}

func (d Duration) String() string { return time.Duration(d).String() }

// NewerVersionError says that a record was written in a format that this build does not know. It is no damage: such a
// record is left alone (docs/protocol.md, Records of a newer version).
type NewerVersionError struct {
	Path    string
	Version int
}

func (e *NewerVersionError) Error() string {
	return fmt.Sprintf("znode %s has format version %d, this zkelectd reads up to %d: upgrade this host", e.Path, e.Version, FormatVersion)
}

// Header is common to all records: the format version and the fields that this build doesn't know. The latter are kept
// when a record is written anew, so that an older daemon does not strip what a newer one wrote.
type Header struct {
	V       int                        `json:"v"`
	Unknown map[string]json.RawMessage `json:"-"`
}

func (h *Header) header() *Header { return h }

type record interface{ header() *Header }

// Encode writes a record as JSON in the current format version.
func Encode(r record) []byte {
	h := r.header()
	h.V = FormatVersion
	data := plain(r)
	if len(h.Unknown) == 0 {
		return data
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		panic(fmt.Sprintf("cluster: encode %T: %v", r, err))
	}
	for key, value := range h.Unknown {
		if _, known := all[key]; !known {
			all[key] = value
		}
	}
	return plain(all)
}

// plain is JSON without the escapes for HTML, which would make six bytes of a "<" each time that a record is written anew.
func plain(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		// Records are plain structs of marshalable fields; only a programming error gets here.
		panic(fmt.Sprintf("cluster: encode %T: %v", v, err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Decode reads a record. path goes into the error, which is for an operator: the znode, the reason, what to do.
func Decode(path string, data []byte, r record) error {
	if len(data) == 0 {
		return fmt.Errorf("znode %s is empty: not written by zkelectd", path)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return fmt.Errorf("znode %s is not a zkelectd record: %w", path, err)
	}
	var probe struct {
		V *int `json:"v"`
	}
	if err := json.Unmarshal(data, &probe); err != nil || probe.V == nil || *probe.V < 1 {
		return fmt.Errorf("znode %s has no format version \"v\": not written by zkelectd", path)
	}
	if *probe.V > FormatVersion {
		return &NewerVersionError{Path: path, Version: *probe.V}
	}
	if err := json.Unmarshal(data, r); err != nil {
		return fmt.Errorf("znode %s is not a valid record: %w", path, err)
	}
	known := jsonKeys(reflect.TypeOf(r).Elem())
	for key := range all {
		// As JSON reads them, without regard to case: a "Term" that were kept could overrule the "term" that is written next.
		if slices.ContainsFunc(known, func(name string) bool { return strings.EqualFold(name, key) }) {
			delete(all, key)
		}
	}
	if len(all) > 0 {
		r.header().Unknown = all
	}
	return nil
}

func jsonKeys(t reflect.Type) []string {
	var keys []string
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			keys = append(keys, jsonKeys(f.Type)...)
			continue
		}
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			keys = append(keys, name)
		}
	}
	return keys
}

// Node is the record of nodes/<id>: who and where a daemon is.
type Node struct {
	Header
	ID       string            `json:"id"`
	Site     string            `json:"site"`
	Priority int               `json:"priority"`
	Labels   map[string]string `json:"labels,omitempty"`
	// Ineligible says why this daemon must not lead at present; empty if it may.
	Ineligible string `json:"ineligible,omitempty"`
	// Unhealthy says what is wrong with the host by its own health probe; empty if nothing is.
	Unhealthy string `json:"unhealthy,omitempty"`
	// Latency is the smoothed round trip of a request to ZooKeeper, in milliseconds, Score the smoothed output of the score
	// probe; nil if not known.
	Latency *float64 `json:"latency_ms,omitempty"`
	Score   *float64 `json:"score,omitempty"`
	// Host, PID, Boot and Started identify the process for an operator, and for a restarted daemon that finds the
	// ephemeral of its own predecessor. Boot is the kernel's boot id, Started the process' start in clock ticks.
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Boot    string `json:"boot,omitempty"`
	Started uint64 `json:"started,omitempty"`
	// SessionTimeout is the negotiated one.
	SessionTimeout Duration `json:"session_timeout"`
	API            string   `json:"api,omitempty"`
	// PolicyDigest is of the rules in its own configuration ([Rules.Digest]).
	PolicyDigest string `json:"policy_digest,omitempty"`
	// Reloads counts how often the configuration was read again. Of the last time, Refused says why it was not taken over,
	// Reloaded else what has changed.
	Reloads  int64  `json:"reloads,omitempty"`
	Refused  string `json:"reload_refused,omitempty"`
	Reloaded string `json:"reloaded,omitempty"`
	Version  string `json:"version,omitempty"`
	// ACL is the setting by which it creates znodes, and Identities name the credentials that it presents to ZooKeeper, as
	// user and a short hash. OpenTree reports that everybody who reaches ZooKeeper may change the group's znodes.
	ACL        string   `json:"acl,omitempty"`
	Identities []string `json:"identities,omitempty"`
	OpenTree   bool     `json:"open_tree,omitempty"`
	// Since is for people: when the daemon registered, by its host's clock.
	Since time.Time `json:"since"`
}

// Cause says why a decision was made.
type Cause string

// The causes of an election.
const (
	CauseFirst      Cause = "first"      // there was no decision before
	CauseFailure    Cause = "failure"    // the elected daemon is gone
	CauseStopped    Cause = "stopped"    // the elected daemon was stopped on request
	CauseGaveUp     Cause = "gave-up"    // the elected daemon released: its task or its lease failed
	CauseRevoked    Cause = "revoked"    // the elected daemon's leadership was revoked
	CauseOverdue    Cause = "overdue"    // the takeover took too long
	CausePreempt    Cause = "preempt"    // a better member may take over
	CauseIneligible Cause = "ineligible" // the elected daemon may no longer lead
	CauseUnhealthy  Cause = "unhealthy"  // the elected daemon's host fails its health probe
	CauseMove       Cause = "move"       // an operator moved leadership
	CauseStepDown   Cause = "step-down"  // an operator had the leader step down
	CauseDrain      Cause = "drain"      // an operator drained the leader's node or site
	CauseReelect    Cause = "reelect"    // an operator had the election run again
	CauseRepair     Cause = "repair"     // the records had been deleted or damaged
)

// Causes are all of them.
var Causes = []Cause{
	CauseFirst, CauseFailure, CauseStopped, CauseGaveUp, CauseRevoked, CauseOverdue, CausePreempt,
	CauseIneligible, CauseUnhealthy, CauseMove, CauseStepDown, CauseDrain, CauseReelect, CauseRepair,
}

// Elected is the record of leader/elected: the elector's decision. Every write is a new term.
type Elected struct {
	Header
	Term        int64  `json:"term"`
	Node        string `json:"node"`
	Site        string `json:"site"`
	Incarnation string `json:"incarnation"`
	Cause       Cause  `json:"cause"`
	// Reason is the cause in words.
	Reason string `json:"reason"`
	// Request is the number of the operator's request that it carries out, RequestedBy who gave that; 0 and empty if nobody did.
	Request     int64  `json:"request,omitempty"`
	RequestedBy string `json:"requested_by,omitempty"`
	// By is the incarnation of the elector.
	By string `json:"by"`
	// PreviousNode and PreviousSite name who was elected before; empty the first time.
	PreviousNode string `json:"previous_node,omitempty"`
	PreviousSite string `json:"previous_site,omitempty"`
	// Ranking has a verdict for each member, best first, then those that may not lead. RankingOmitted counts what was
	// left out to keep the record small.
	Ranking        []Verdict   `json:"ranking"`
	RankingOmitted int         `json:"ranking_omitted,omitempty"`
	Exclusions     []Exclusion `json:"exclusions,omitempty"`
	PolicyRevision int64       `json:"policy_revision,omitempty"`
	// Circumstances are what the ranking was made under, and is made again while the decision stands.
	Circumstances Circumstances `json:"circumstances,omitzero"`
	// Preemptions are the terms in which policy replaced a healthy leader; damping counts them.
	Preemptions []int64 `json:"preemptions,omitempty"`
	// Time is for people, by the elector's clock.
	Time time.Time `json:"time"`
}

// Circumstances say after what a leader is looked for. A decision that only follows policy keeps those of the one before,
// lest the ranking turn round once it is written (S3).
type Circumstances struct {
	Cause Cause `json:"cause,omitempty"`
	// Node and Site were the last leader's.
	Node string `json:"node,omitempty"`
	Site string `json:"site,omitempty"`
	// Failed lists the sites on which leaders and candidates have failed since somebody last led.
	Failed []string `json:"failed,omitempty"`
}

// Verdict is what a ranking says of one member.
type Verdict struct {
	Node        string `json:"node"`
	Site        string `json:"site,omitempty"`
	Incarnation string `json:"incarnation"`
	// Rank is 1 for the best; 0 if the member may not lead.
	Rank int `json:"rank"`
	// Why is the verdict in words.
	Why string `json:"why"`
}

// FenceState is how the last leadership stands.
type FenceState string

// The states of the fence.
const (
	FenceHeld     FenceState = "HELD"     // acquired, taking over
	FenceReady    FenceState = "READY"    // leading
	FenceReleased FenceState = "RELEASED" // given up with the child dead, nothing owed
	FenceUnclean  FenceState = "UNCLEAN"  // given up, but the lease wait for an earlier holder had not been served
	FenceRevoked  FenceState = "REVOKED"  // taken away by the elector: the holder's lease may still run
)

// Fence is the record in the data of leader: who last held leadership, in which term, how it ended.
type Fence struct {
	Header
	Term        int64      `json:"term"`
	Node        string     `json:"node"`
	Site        string     `json:"site"`
	Incarnation string     `json:"incarnation"`
	State       FenceState `json:"state"`
	// Owed is the lease wait that this holder took over unserved from those before it.
	Owed Duration `json:"owed,omitempty"`
	// LeaseWait is W for this holder: how long a successor waits if its end is not known to be clean.
	LeaseWait Duration `json:"lease_wait"`
	// Kill (K) and RevokeTimeout bound how long the elector waits before it revokes: K for a candidate that is overdue,
	// RevokeTimeout (stop timeout + D + K) for a leader that was replaced.
	Kill          Duration `json:"kill"`
	RevokeTimeout Duration `json:"revoke_timeout"`
	// Reason is why it ended; Requested that an operator stopped the daemon, which is no strike.
	Reason    string `json:"reason,omitempty"`
	Requested bool   `json:"requested,omitempty"`
	// Led tells, of a leadership that has ended, that it had been READY.
	Led bool `json:"led,omitempty"`
	// Lost says, of a release, that the holder did not live, or not keep its session, to write it: it was written for it,
	// its work being dead, when its session was closed.
	Lost bool `json:"lost,omitempty"`
	// Wait says how long, and why, this holder waits or has waited before its work; empty if it need not.
	Wait string    `json:"wait,omitempty"`
	Time time.Time `json:"time"`
}

// CurrentState is the state of leader/current.
type CurrentState string

// The states of leader/current.
const (
	CurrentProgress CurrentState = "PROGRESS"
	CurrentReady    CurrentState = "READY"
)

// Current is the record of leader/current, the leader's ephemeral.
type Current struct {
	Header
	Term        int64        `json:"term"`
	Node        string       `json:"node"`
	Site        string       `json:"site"`
	Incarnation string       `json:"incarnation"`
	State       CurrentState `json:"state"`
	API         string       `json:"api,omitempty"`
	// Time is when it entered the state, by its host's clock; for people.
	Time time.Time `json:"time"`
}

// Exclusion is a strike against a node, kept in the elected record so that every elector inherits it.
type Exclusion struct {
	Node    string `json:"node"`
	Strikes int    `json:"strikes"`
	// For is how long the node is excluded, from when an elector first saw the strike.
	For Duration `json:"for"`
	// Served is set once the exclusion has run out or was lifted; the strikes still count.
	Served bool `json:"served,omitempty"`
	// Term is the one whose attempt earned the last strike.
	Term   int64     `json:"term"`
	Reason string    `json:"reason"`
	Time   time.Time `json:"time"`
}

// MaxRecord bounds a record, to half of what a server takes at once. Fields that are not known are kept when it is written
// anew: of a larger one nothing could be written any more, and it would be there for good.
const MaxRecord = 500 << 10

// suspicious is from how many bytes on it is tried whether a record fits once it is written anew. A smaller one does.
const suspicious = 4 << 10

// ReadSlot decodes what was read of the znode at path.
func ReadSlot[T any, R interface {
	*T
	record
}](path string, data []byte, stat Stat, exists bool) Slot[T] {
	s := Slot[T]{Exists: exists, Stat: stat}
	if !exists {
		return s
	}
	if len(data) > MaxRecord {
		s.Err = fmt.Errorf("znode %s holds %d bytes, more than a zkelectd record can have (%d)", path, len(data), MaxRecord)
		return s
	}
	var rec T
	if s.Err = Decode(path, data, R(&rec)); s.Err != nil {
		return s
	}
	if of, ok := any(&rec).(interface{ plausible(Stat) error }); ok {
		if err := of.plausible(stat); err != nil {
			s.Err = fmt.Errorf("znode %s holds %w", path, err)
			return s
		}
	}
	// An empty verdict is two bytes as a stranger writes it, and fifty as we do.
	if len(data) > suspicious && len(Encode(R(&rec))) > MaxRecord {
		s.Err = fmt.Errorf("znode %s holds a record that would be longer than %d bytes if it were written anew", path, MaxRecord)
		return s
	}
	s.Record = rec
	return s
}
