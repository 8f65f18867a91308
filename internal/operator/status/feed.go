package status

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"zkelectd/internal/cluster"
)

// The kinds of events.
const (
	// EventDaemon has the whole view of a daemon after a change: a [Response].
	EventDaemon = "daemon"
	// EventState has a daemon's change of phase: a [Change].
	EventState = "state"
	// EventLeadership has the holder of leadership: a [HolderChange].
	EventLeadership = "leadership"
)

// Event is a change that the HTTP API reports.
type Event struct {
	// ID is unique, also across restarts of the daemon; empty if a reader cannot resume after the event.
	ID   string
	Kind string
	Data []byte // JSON, on one line
}

// Holder is the holder of leadership. State is READY, PROGRESS or NONE.
type Holder struct {
	Node  string `json:"node,omitempty"`
	Site  string `json:"site,omitempty"`
	Term  int64  `json:"term,omitempty"`
	State string `json:"state"`
	// Value is what its work publishes; empty if nothing.
	Value string `json:"value,omitempty"`
}

// HolderOf returns the holder that current names.
func HolderOf(c cluster.Current) Holder {
	return Holder{Node: c.Node, Site: c.Site, Term: c.Term, State: string(c.State), Value: c.Value}
}

// HolderChange is what every member can know about the leadership of its group: the holder, and how the term began.
// Without a holder, the term and PreviousLeader are those of the leadership that has ended.
type HolderChange struct {
	Holder
	// Cause and Reason are why the term began.
	Cause  string `json:"cause,omitempty"`
	Reason string `json:"reason,omitempty"`
	// PreviousLeader held leadership before; empty if that is not known. PreviousClean reports whether there was no
	// lease of it to wait for, or, without a holder, whether leadership was released.
	PreviousLeader string `json:"previous_leader,omitempty"`
	PreviousClean  bool   `json:"previous_clean"`
}

// Proposal is the input of hooks.on_proposal.
type Proposal struct {
	// Node and Site are those of the daemon that runs the hook.
	Node  string `json:"node"`
	Site  string `json:"site"`
	Group string `json:"group"`
	Root  string `json:"root"`
	// Request is the number of the proposal. Leader and LeaderSite are who would be elected.
	Request    int64  `json:"request"`
	Leader     string `json:"leader"`
	LeaderSite string `json:"leader_site"`
	Cause      string `json:"cause"`
	Reason     string `json:"reason"`
	// ConfirmAfter is how long nobody may answer before it is elected all the same; 0s for as long as it takes.
	ConfirmAfter cluster.Duration `json:"confirm_after"`
	Time         time.Time        `json:"time"`
}

// LeaderChange is the input of hooks.on_leader_change. State is READY, or NONE while nobody leads.
type LeaderChange struct {
	// Node and Site are those of the daemon that runs the hook.
	Node  string `json:"node"`
	Site  string `json:"site"`
	Group string `json:"group"`
	Root  string `json:"root"`
	// Leader and LeaderSite are empty while nobody leads. Term is then that of the leadership that has ended, 0 if that
	// is not known.
	Leader         string    `json:"leader"`
	LeaderSite     string    `json:"leader_site"`
	Term           int64     `json:"term"`
	State          string    `json:"state"`
	Value          string    `json:"value,omitempty"` // what the leader's work publishes
	Cause          string    `json:"cause"`
	Reason         string    `json:"reason"`
	PreviousLeader string    `json:"previous_leader"`
	PreviousClean  bool      `json:"previous_clean"`
	Time           time.Time `json:"time"`
}

// feedSize is the number of events that are kept.
const feedSize = 256

// Feed keeps the last events for any number of readers, none of which can block the writer.
type Feed struct {
	epoch   string // distinguishes the ids of this process from those of earlier ones
	mu      sync.Mutex
	events  []Event
	last    uint64        // the number of the newest
	changed chan struct{} // closed at the next event

	follow   sync.Once
	followed chan struct{}
}

// NewFeed returns an empty feed.
func NewFeed() *Feed {
	return &Feed{epoch: strconv.FormatInt(time.Now().UnixNano(), 36), changed: make(chan struct{}),
		followed: make(chan struct{})}
}

// Follow notes that somebody reads the feed. From then on it also has what costs reads of ZooKeeper.
func (f *Feed) Follow() { f.follow.Do(func() { close(f.followed) }) }

// Followed returns a channel that is closed by the first Follow.
func (f *Feed) Followed() <-chan struct{} { return f.followed }

// Add appends an event.
func (f *Feed) Add(kind string, data any) {
	text, err := json.Marshal(data)
	if err != nil {
		// Events are plain structs of marshalable fields; only a programming error gets here.
		panic(fmt.Sprintf("status: event %s: %v", kind, err))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last++
	if len(f.events) == feedSize {
		f.events = append(f.events[:0], f.events[1:]...)
	}
	f.events = append(f.events, Event{f.id(f.last), kind, text})
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *Feed) id(n uint64) string { return fmt.Sprintf("%s-%d", f.epoch, n) }

// Newest returns the id of the newest event, after which a reader resumes that wants no past events.
func (f *Feed) Newest() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.id(f.last)
}

// Since returns the events after an id, and a channel that is closed when there is another. known is false if the id is
// not from this feed, or so old that events after it are no longer kept.
func (f *Feed) Since(id string) (events []Event, more <-chan struct{}, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	epoch, number, _ := strings.Cut(id, "-")
	n, err := strconv.ParseUint(number, 10, 64)
	oldest := f.last - uint64(len(f.events)) // the number before the first that is kept
	if epoch != f.epoch || err != nil || n > f.last || n < oldest {
		return nil, f.changed, false
	}
	return slices.Clone(f.events[n-oldest:]), f.changed, true
}

// AddChanges adds events for the differences between two views of a daemon.
func (f *Feed) AddChanges(before, after Daemon) {
	if before.eventFields() != after.eventFields() {
		f.Add(EventDaemon, after.At(after.UpdatedAt).Response())
	}
}

// eventFields are the fields whose change is an event, unlike that of an age.
type eventFields struct {
	node, site, incarnation, phase, unhealthy, elected, note, blocked, drift, slotsDrift string
	elector, loop, session, connected, child, paused                                     bool
	term, electedTerm                                                                    int64
}

func (d *Daemon) eventFields() eventFields {
	return eventFields{
		d.Node, d.Site, d.Incarnation, d.Phase, d.Unhealthy, d.Elected, d.Note, d.Blocked, d.Drift, d.SlotsDrift,
		d.Elector, d.Loop, d.Session, d.Connected, d.Child, d.Paused,
		d.Term, d.ElectedTerm,
	}
}
