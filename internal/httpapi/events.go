package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"zkelectd/internal/status"
)

const (
	// maxListeners bounds those that follow the events, clientListeners those of one address.
	maxListeners    = 64
	clientListeners = 16
	// beatEvery is how often who follows the events is told that all is well, or that it is not.
	beatEvery = 10 * time.Second
	// writeLimit is how long a listener may take to accept what it is sent.
	writeLimit = 10 * time.Second
	// eventBeat is sent now and then, with a stamp. It has no id.
	eventBeat = "beat"
)

// events streams changes as server-sent events. It begins with the present view, or after Last-Event-ID, if that is known.
func (a *api) events(w http.ResponseWriter, r *http.Request) {
	if a.opt.Feed == nil {
		a.respond(w, http.StatusServiceUnavailable, a.refusal("this daemon keeps no events"))
		return
	}
	from := sourceOf(r)
	if !a.listeners.take(from) {
		w.Header().Set("Retry-After", "5")
		a.respond(w, http.StatusServiceUnavailable, a.refusal(fmt.Sprintf(
			"there are %d streams of events already, or %d from %s", a.listeners.all, a.listeners.each, from.address)))
		return
	}
	defer a.listeners.give(from)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy that collects them makes them late
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	s := stream{w: w, control: http.NewResponseController(w)}
	s.write("retry: 2000\n\n")
	a.follow(s, r)
}

// follow sends until the listener has gone, is too slow, or the daemon ends.
func (a *api) follow(s stream, r *http.Request) {
	at := r.Header.Get("Last-Event-ID")
	beat := time.NewTicker(a.beat)
	defer beat.Stop()
	for r.Context().Err() == nil {
		events, more, known := a.opt.Feed.Since(at)
		if !known {
			// What was missed can't be told any more, or never was: the whole view stands for it. The place is taken first, so
			// that nothing is lost between the two.
			at = a.opt.Feed.Newest()
			events = []status.Event{a.present(at)}
		}
		for _, e := range events {
			if !s.event(e) {
				return
			}
			at = e.ID
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-more:
		case <-beat.C:
			data, _ := json.Marshal(stampOf(a.opt.View()))
			if !s.event(status.Event{Kind: eventBeat, Data: data}) {
				return
			}
		case <-r.Context().Done():
		}
	}
}

// present is the view as an event.
func (a *api) present(id string) status.Event {
	v := a.opt.View()
	data, _ := json.Marshal(v.Response())
	return status.Event{ID: id, Kind: status.EventDaemon, Data: data}
}

// stream writes events, each within a limit of its own.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (s stream) event(e status.Event) bool {
	id := ""
	if e.ID != "" {
		id = "id: " + e.ID + "\n"
	}
	return s.write(fmt.Sprintf("%sevent: %s\ndata: %s\n\n", id, e.Kind, status.PlainJSON(e.Data)))
}

func (s stream) write(text string) bool {
	s.control.SetWriteDeadline(time.Now().Add(writeLimit))
	_, err := s.w.Write([]byte(text))
	return err == nil && s.control.Flush() == nil
}
