package httpapi

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"time"

	"zkelectd/internal/status"
)

const (
	// maxDesks is how many requests other than probes are answered at once, clientDesks how many of one address. It is less than
	// maxClients: a connection with a desk is the only one that can't be made to give way.
	maxDesks    = 128
	clientDesks = 32
	// hangUpLimit is how long the rest of a request, or the reader of a refusal, is waited for.
	hangUpLimit = 500 * time.Millisecond
)

// guarded refuses what would only keep a connection busy, before anything else is done: other names of the host than its
// own, bodies that nobody reads, and more requests of a client than its share.
func (a *api) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := a.checkHost(r); err != nil {
			// Without the stamp: a page that may not know who answers could read it.
			a.hangUp(w, r, http.StatusMisdirectedRequest, map[string]string{"error": err.Error()})
			return
		}
		if hasBody(r) && !(r.Method == http.MethodPost && a.takesBody[r.URL.Path]) {
			a.hangUp(w, r, http.StatusBadRequest, a.refusal(r.Method+" takes no body here: leave it out, with its Content-Length"))
			return
		}
		if slices.Contains(ProbePaths(), r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		from := sourceOf(r)
		if !a.desks.take(from) {
			w.Header().Set("Retry-After", "1")
			a.hangUp(w, r, http.StatusServiceUnavailable, a.refusal("too many requests at once, in all or from "+from.address))
			return
		}
		defer a.desks.give(from)
		conn := connOf(r)
		conn.seat(1)
		defer conn.seat(-1)
		next.ServeHTTP(w, r)
	})
}

// checkHost returns an error if the request is for a name that is not this daemon's. No browser reaches a unix socket.
func (a *api) checkHost(r *http.Request) error {
	if c := connOf(r); a.opt.Hosts == nil || (c != nil && c.RemoteAddr().Network() == "unix") {
		return nil
	}
	return a.opt.Hosts.Check(r.Host)
}

// hasBody reports whether a request announces a body.
func hasBody(r *http.Request) bool { return r.ContentLength != 0 || len(r.TransferEncoding) > 0 }

// hangUp answers and closes the connection. net/http waits for the rest of a body before that, and a client may never send it.
func (a *api) hangUp(w http.ResponseWriter, r *http.Request, code int, body any) {
	if r.ProtoMajor > 1 { // of HTTP/2 only the stream is reset
		a.respond(w, code, body)
		return
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		w.Header().Set("Connection", "close")
		a.respond(w, code, body)
		return
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(hangUpLimit))
	text, _ := json.Marshal(body)
	text = status.PlainJSON(text)
	header := w.Header().Clone()
	header.Set("Content-Type", "application/json")
	header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	answer := http.Response{
		StatusCode: code, ProtoMajor: 1, ProtoMinor: 1, Header: header, ContentLength: int64(len(text)) + 1, Close: true, Request: r,
		Body: io.NopCloser(bytes.NewReader(append(text, '\n'))),
	}
	answer.Write(conn) // a client that has gone is no concern
}

// hurry has the connection closed after the answer, and waits no longer than that for the rest of a body that is not read.
func hurry(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor > 1 {
		return // other requests share the connection
	}
	w.Header().Set("Connection", "close")
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(hangUpLimit))
}
