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
	// EventDaemon is a daemon's whole view, after something of it has changed: a [Response].
	EventDaemon = "daemon"
	// EventState is a turn of the daemon, with the reason: a [Change].
	EventState = "state"
	// EventElected is a new decision: a [Decision].
	EventElected = "elected"
	// EventLeadership is who holds leadership, where the daemon has to know that: a [Holder].
	EventLeadership = "leadership"
)

// Event is something that has changed.
type Event struct {
	// ID is never used again, not even by the daemon's next process; empty for what can't be resumed from.
	ID   string
	Kind string
	Data []byte // JSON, on one line
}

// Decision is the newest one, as an event.
type Decision struct {
	Node   string `json:"node"`
	Site   string `json:"site"`
	Term   int64  `json:"term"`
	Cause  string `json:"cause"`
	Reason string `json:"reason"`
}

// Holder is who holds leadership; State is READY, PROGRESS or NONE.
type Holder struct {
	Node  string `json:"node,omitempty"`
	Site  string `json:"site,omitempty"`
	Term  int64  `json:"term,omitempty"`
	State string `json:"state"`
}

// feedSize is how many events can be resumed from.
const feedSize = 256

// Feed keeps the last events for any number of readers, none of which can hold the writer up.
type Feed struct {
	epoch   string // tells the ids of this process from those of the one before
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

// Newest is the id to go on from if nothing of the past is wanted.
func (f *Feed) Newest() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.id(f.last)
}

// Since returns what came after an id, and a channel that is closed when there is more. It is not known if the id is
// foreign, or so old that something after it is no longer kept.
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

// Changed adds what is new in a daemon's view.
func (f *Feed) Changed(before, after Daemon) {
	if after.ElectedTerm != 0 && (before.ElectedTerm != after.ElectedTerm || before.Elected != after.Elected) {
		f.Add(EventElected, Decision{after.Elected, after.ElectedSite, after.ElectedTerm, after.Cause, after.Reason})
	}
	if after.Holder != nil && (before.Holder == nil || *before.Holder != *after.Holder) {
		f.Add(EventLeadership, *after.Holder)
	}
	if before.steady() != after.steady() {
		f.Add(EventDaemon, after.At(after.PublishedAt).Response())
	}
}

// steady is what of a view only changes when something happens.
func (d Daemon) steady() any {
	return [...]any{
		d.Node, d.Site, d.Incarnation, d.Phase, d.Elector, d.Loop, d.Session, d.Connected, d.Unhealthy, d.Child, d.Term, d.Elected, d.ElectedTerm,
		d.Note, d.Holding, d.Drift, d.Paused,
	}
}
