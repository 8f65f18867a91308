package web

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"time"

	"zkelectd/internal/operator/status"
)

const (
	// maxRequests limits concurrent requests other than probes; maxClientRequests those of one address. It is less than maxConns,
	// because a connection with an active request is never evicted.
	maxRequests       = 128
	maxClientRequests = 32
	// hangUpTimeout limits how long the server waits for the rest of a request, or for a client to read a refusal.
	hangUpTimeout = 500 * time.Millisecond
)

// admit rejects some requests before next: those with a Host header that is not this daemon's, those with a body that no
// handler reads, and those that exceed the limits of concurrent requests.
func (a *api) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := a.checkHost(r); err != nil {
			// Without the stamp: this response may be read by a page of another origin.
			a.respondAndClose(w, r, http.StatusMisdirectedRequest, map[string]string{"error": err.Error()})
			return
		}
		path := shortPath(r.URL.Path)
		if hasBody(r) && !(r.Method == http.MethodPost && a.takesBody[path]) {
			a.respondAndClose(w, r, http.StatusBadRequest, a.newFailure(r.Method+" takes no body here: send none, and no Content-Length"))
			return
		}
		if slices.Contains(ProbePaths(), path) {
			next.ServeHTTP(w, r)
			return
		}
		from := clientOf(r)
		if !a.requestQuota.acquire(from) {
			w.Header().Set("Retry-After", "1")
			a.respondAndClose(w, r, http.StatusServiceUnavailable, a.newFailure("too many concurrent requests, in total or from "+from.address))
			return
		}
		defer a.requestQuota.release(from)
		conn := connOf(r)
		conn.addActiveRequests(1)
		defer conn.addActiveRequests(-1)
		next.ServeHTTP(w, r)
	})
}

// checkHost returns an error if the Host header is not one of this daemon's names. A unix socket needs no check, because browsers
// cannot connect to it.
func (a *api) checkHost(r *http.Request) error {
	if c := connOf(r); a.opt.Hosts == nil || (c != nil && c.RemoteAddr().Network() == "unix") {
		return nil
	}
	return a.opt.Hosts.Check(r.Host)
}

// hasBody reports whether the headers of a request announce a body.
func hasBody(r *http.Request) bool { return r.ContentLength != 0 || len(r.TransferEncoding) > 0 }

// respondAndClose responds and closes the connection without reading the rest of the body. net/http would wait for it, and a
// client may never send it.
func (a *api) respondAndClose(w http.ResponseWriter, r *http.Request, code int, body any) {
	if r.ProtoMajor > 1 { // with HTTP/2 only the stream is reset
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
	conn.SetDeadline(time.Now().Add(hangUpTimeout))
	text, _ := json.Marshal(body)
	text = status.PrintableJSON(text)
	header := w.Header().Clone()
	header.Set("Content-Type", "application/json")
	header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	answer := http.Response{
		StatusCode: code, ProtoMajor: 1, ProtoMinor: 1, Header: header, ContentLength: int64(len(text)) + 1, Close: true, Request: r,
		Body: io.NopCloser(bytes.NewReader(append(text, '\n'))),
	}
	answer.Write(conn) // the client may be gone, so errors do not matter
}

// closeAfterResponse makes the server close the connection after the response, and limits how long it waits for the unread rest
// of the body.
func closeAfterResponse(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor > 1 {
		return // other requests share the connection
	}
	w.Header().Set("Connection", "close")
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(hangUpTimeout))
}
