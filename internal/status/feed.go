package status

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The kinds of events.
const (
	// EventDaemon has the whole view of a daemon after a change: a [Response].
	EventDaemon = "daemon"
	// EventState has a daemon's change of phase: a [Change].
	EventState = "state"
	// EventElected has a new decision: a [Decision].
	EventElected = "elected"
	// EventLeadership has the holder of leadership, if the daemon has to know it: a [Holder].
	EventLeadership = "leadership"
)

// Event is a change that the HTTP API reports.
type Event struct {
	// ID is unique, also across restarts of the daemon; empty if a reader cannot resume after the event.
	ID   string
	Kind string
	Data []byte // JSON, on one line
}

// Decision is the newest decision of an elector.
type Decision struct {
	Node   string `json:"node"`
	Site   string `json:"site"`
	Term   int64  `json:"term"`
	Cause  string `json:"cause"`
	Reason string `json:"reason"`
}

// Holder is the holder of leadership. State is READY, PROGRESS or NONE.
type Holder struct {
	Node  string `json:"node,omitempty"`
	Site  string `json:"site,omitempty"`
	Term  int64  `json:"term,omitempty"`
	State string `json:"state"`
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
}

// NewFeed returns an empty feed.
func NewFeed() *Feed {
	return &Feed{epoch: strconv.FormatInt(time.Now().UnixNano(), 36), changed: make(chan struct{})}
}

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

// Since returns the events after an id, and a channel that is closed when there is another. known is false if the id is not
// from this feed, or so old that events after it are no longer kept.
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
	if after.ElectedTerm != 0 && (before.ElectedTerm != after.ElectedTerm || before.Elected != after.Elected) {
		f.Add(EventElected, Decision{after.Elected, after.ElectedSite, after.ElectedTerm, after.Cause, after.Reason})
	}
	if after.Holder != nil && (before.Holder == nil || *before.Holder != *after.Holder) {
		f.Add(EventLeadership, *after.Holder)
	}
	if before.eventFields() != after.eventFields() {
		f.Add(EventDaemon, after.At(after.PublishedAt).Response())
	}
}

// eventFields returns the fields whose change is an event, unlike that of an age.
func (d Daemon) eventFields() any {
	return [...]any{
		d.Node, d.Site, d.Incarnation, d.Phase, d.Elector, d.Loop, d.Session, d.Connected, d.Unhealthy, d.Child, d.Term, d.Elected, d.ElectedTerm,
		d.Note, d.Blocked, d.Drift, d.Paused,
	}
}
