package peer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// ServerOptions configure a [NewHandler]. The functions are called by several goroutines at once.
type ServerOptions struct {
	// Node is the id of this daemon.
	Node string
	// Secrets returns the keys of the group with that root; the error says why it has none here.
	Secrets func(group string) ([][]byte, error)
	// Answer returns the answer to an authenticated message from a node. It must not block for longer than the limit of the reader.
	Answer func(kind Kind, from, group string, body []byte) ([]byte, error)
}

// The limits of what is served at once, and how long a client may take to send a request. A peer sends one request at a time.
const (
	maxRequests       = 64
	maxClientRequests = 8
	readTimeout       = 500 * time.Millisecond
	writeTimeout      = 2 * time.Second
)

// NewHandler returns the handler of [Path].
func NewHandler(opt ServerOptions) http.Handler {
	return &server{opt: opt, clients: make(map[string]int)}
}

type server struct {
	opt ServerOptions

	mu      sync.Mutex
	active  int
	clients map[string]int // active requests by address
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		s.fail(w, http.StatusMethodNotAllowed, errors.New("only POST"))
		return
	}
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(readTimeout)) // without support for it, the server has its own limit
	control.SetWriteDeadline(time.Now().Add(writeTimeout))
	from := clientAddress(r)
	if !s.acquire(from) {
		s.fail(w, http.StatusServiceUnavailable, errors.New("too many requests at once"))
		return
	}
	defer s.release(from)
	asked, err := readRequest(r)
	if err == nil {
		err = s.check(asked)
	}
	if err != nil {
		s.fail(w, http.StatusBadRequest, err)
		return
	}
	control.SetReadDeadline(time.Time{}) // the connection stays open for the next request
	answer := response{V: version, Messages: make([]sealed, len(asked.Messages))}
	for i, m := range asked.Messages {
		answer.Messages[i] = s.answer(asked, m)
	}
	respond(w, http.StatusOK, answer)
}

func clientAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

func (s *server) acquire(client string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active >= maxRequests || s.clients[client] >= maxClientRequests {
		return false
	}
	s.active++
	s.clients[client]++
	return true
}

func (s *server) release(client string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
	if s.clients[client]--; s.clients[client] == 0 {
		delete(s.clients, client)
	}
}

// readRequest reads a request, of which nothing is authenticated yet.
func readRequest(r *http.Request) (request, error) {
	var asked request
	data, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	switch {
	case err != nil:
		return asked, fmt.Errorf("cannot be read: %w", err)
	case len(data) > maxBody:
		return asked, fmt.Errorf("has more than %d bytes", maxBody)
	}
	if err := json.Unmarshal(data, &asked); err != nil {
		return asked, fmt.Errorf("is not a request: %w", err)
	}
	return asked, nil
}

func (s *server) check(r request) error {
	switch {
	case r.V != version:
		return fmt.Errorf("has format version %d, this zkelectd reads %d", r.V, version)
	case r.Kind != Round && r.Kind != Probe:
		return fmt.Errorf("is of the unknown kind %q", r.Kind)
	case len(r.Messages) > maxMessages:
		return fmt.Errorf("has more than %d messages", maxMessages)
	case len(r.Nonce) != nonceSize:
		return errors.New("has no nonce")
	case r.To != s.opt.Node:
		return fmt.Errorf("is for %q, but this is %q", r.To, s.opt.Node)
	}
	return nil
}

// answer answers one message.
func (s *server) answer(r request, m sealed) sealed {
	refuse := func(err error) sealed { return sealed{Group: m.Group, Reason: err.Error()} }
	secrets, err := s.opt.Secrets(m.Group)
	switch {
	case err != nil:
		return refuse(err)
	case !verify(secrets, m.Seals, r.question(m.Group, m.Body)...):
		return refuse(errors.New("the question does not have the signature of a member of the group"))
	}
	body, err := s.opt.Answer(r.Kind, r.From, m.Group, m.Body)
	if err != nil {
		return refuse(err)
	}
	return sealed{Group: m.Group, Body: body, Seals: seal(secrets, r.answer(m, body)...)}
}

// fail refuses a request. Its connection is closed: the rest of the request may never come.
func (s *server) fail(w http.ResponseWriter, code int, err error) {
	w.Header().Set("Connection", "close")
	respond(w, code, sealed{Reason: err.Error()})
}

func respond(w http.ResponseWriter, code int, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Sprintf("peer: %T: %v", body, err)) // not reached: plain values
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	w.Write(data) // the client may be gone, so errors do not matter
}
