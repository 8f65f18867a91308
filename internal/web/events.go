package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"zkelectd/internal/operator/status"
)

const (
	// maxStreams limits concurrent event streams; maxClientStreams those of one address.
	maxStreams       = 64
	maxClientStreams = 16
	// heartbeatInterval is the time between two eventHeartbeat events.
	heartbeatInterval = 10 * time.Second
	// writeTimeout limits how long a client may take to accept an event.
	writeTimeout = 10 * time.Second
	// eventHeartbeat is the type of the heartbeat events, which contain a stamp and have no id.
	eventHeartbeat = "heartbeat"
)

// events streams changes as server-sent events. The first event is the current view. If the request has a Last-Event-ID
// that is known, the stream continues after that event instead.
func (a *api) events(w http.ResponseWriter, r *http.Request, g *Group) {
	if !a.acquire(w, r, a.streamQuota, g, "event streams") {
		return
	}
	defer a.streamQuota.release(clientOf(r))
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy must not buffer the events
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	s := stream{w: w, control: http.NewResponseController(w)}
	s.write("retry: 2000\n\n")
	g.Feed.Follow()
	a.follow(s, r, g)
}

// follow sends events until the client is gone or too slow, or the daemon ends.
func (a *api) follow(s stream, r *http.Request, g *Group) {
	at := r.Header.Get("Last-Event-ID")
	heartbeat := time.NewTicker(a.heartbeat)
	defer heartbeat.Stop()
	for r.Context().Err() == nil {
		events, more, known := g.Feed.Since(at)
		if !known {
			// The missed events are no longer available: send the whole view instead. Take the position first, so that no event
			// between the two is lost.
			at = g.Feed.Newest()
			events = []status.Event{g.viewEvent(at)}
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
		case <-heartbeat.C:
			data, _ := json.Marshal(stampOf(g.view()))
			if !s.event(status.Event{Kind: eventHeartbeat, Data: data}) {
				return
			}
		case <-r.Context().Done():
		}
	}
}

// viewEvent returns the current view as an event.
func (g *Group) viewEvent(id string) status.Event {
	v := g.view()
	data, _ := json.Marshal(v.Response())
	return status.Event{ID: id, Kind: status.EventDaemon, Data: data}
}

// stream writes events to a client. Each write has its own timeout.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (s stream) event(e status.Event) bool {
	id := ""
	if e.ID != "" {
		id = "id: " + e.ID + "\n"
	}
	return s.write(fmt.Sprintf("%sevent: %s\ndata: %s\n\n", id, e.Kind, status.PrintableJSON(e.Data)))
}

func (s stream) write(text string) bool {
	s.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := s.w.Write([]byte(text))
	return err == nil && s.control.Flush() == nil
}
