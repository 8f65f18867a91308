package peer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// ServerOptions configure a [NewHandler]. The functions are called by several goroutines at once.
type ServerOptions struct {
	// Node is the id of this daemon.
	Node string
	// Secrets returns the keys of the group with that root; none if it has none here.
	Secrets func(group string) [][]byte
	// Answer returns the answer to an authenticated message from a node. It must not block for longer than the limit of
	// the reader.
	Answer func(kind Kind, from, group string, body []byte) ([]byte, error)
}

// The limits of what nobody has authenticated yet: how many requests are read at once, and how long a client may take
// to send one. A peer has sent its request within milliseconds.
const (
	maxReads     = 64
	readTimeout  = 500 * time.Millisecond
	writeTimeout = 2 * time.Second
)

// NewHandler returns the handler of [Path].
func NewHandler(opt ServerOptions) http.Handler { return &server{opt: opt} }

type server struct {
	opt ServerOptions

	mu    sync.Mutex
	reads []*read // the oldest first
}

// read is a request whose body is being read.
type read struct {
	network   string
	interrupt func() // ends the read with an error
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		s.fail(w, http.StatusMethodNotAllowed, errors.New("only POST"))
		return
	}
	if r.Header.Get("Origin") != "" { // a page in a browser, which may reach what its server cannot
		s.fail(w, http.StatusForbidden, errors.New("not for browsers"))
		return
	}
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(readTimeout)) // without support for it, the server has its own limit
	control.SetWriteDeadline(time.Now().Add(writeTimeout))
	reading := s.begin(&read{networkOf(r), func() { control.SetReadDeadline(time.Unix(1, 0)) }})
	data, err := readBody(r)
	s.end(reading)
	var asked request
	if err == nil {
		// Decoding may take long on a busy host. A deadline that passes meanwhile would cancel the request.
		control.SetReadDeadline(time.Time{})
		asked, err = s.decode(data)
	}
	if err != nil {
		s.fail(w, http.StatusBadRequest, err)
		return
	}
	answer := response{V: version, Messages: make([]sealed, len(asked.Messages))}
	for i, m := range asked.Messages {
		if r.Context().Err() != nil {
			return // nobody waits for the answer
		}
		answer.Messages[i] = s.answer(asked, m)
	}
	respond(w, http.StatusOK, answer)
}

// networkOf returns where a request comes from: the address, or the /64 of an IPv6 address, all of which one host
// usually has.
func networkOf(r *http.Request) string {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	addr := at.Addr().Unmap().WithZone("")
	if addr.Is6() {
		return netip.PrefixFrom(addr, 64).Masked().String()
	}
	return addr.String()
}

// begin adds a read. At the limit it interrupts another one: the oldest of the network that has the most. So clients
// that never finish a request evict each other, and a peer is always heard.
func (s *server) begin(next *read) *read {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads = append(s.reads, next)
	if len(s.reads) <= maxReads {
		return next
	}
	count := make(map[string]int)
	for _, r := range s.reads {
		count[r.network]++
	}
	evicted := s.reads[0]
	for _, r := range s.reads[:maxReads] {
		if count[r.network] > count[evicted.network] {
			evicted = r
		}
	}
	evicted.interrupt()
	s.remove(evicted)
	return next
}

// end removes a read that is over. Nothing interrupts it any more.
func (s *server) end(r *read) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(r)
}

// remove removes a read. The caller must hold mu.
func (s *server) remove(r *read) {
	s.reads = slices.DeleteFunc(s.reads, func(other *read) bool { return other == r })
}

// readBody reads a request, of which nothing is authenticated yet.
func readBody(r *http.Request) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot be read: %w", err)
	case len(data) > maxBody:
		return nil, fmt.Errorf("has more than %d bytes", maxBody)
	}
	return data, nil
}

func (s *server) decode(data []byte) (request, error) {
	var asked request
	if err := json.Unmarshal(data, &asked); err != nil {
		return asked, fmt.Errorf("is not a request: %w", err)
	}
	return asked, s.check(asked)
}

func (s *server) check(r request) error {
	switch {
	case r.V != version:
		return fmt.Errorf("has format version %d, this zkelectd reads %d", r.V, version)
	case r.Kind != Round && r.Kind != Probe:
		return fmt.Errorf("is of the unknown kind %s", printable(string(r.Kind)))
	case len(r.Nonce) != nonceSize:
		return errors.New("has no nonce")
	case r.To != s.opt.Node:
		return fmt.Errorf("is for %s, but this is another node", printable(r.To)) // nobody learns the name of this one
	case len(r.From) > maxName:
		return fmt.Errorf("has a sender with more than %d bytes", maxName)
	}
	for i := range r.Messages {
		if err := r.Messages[i].check(); err != nil {
			return err
		}
	}
	return nil
}

// check returns an error if a message is larger than any question.
func (m *sealed) check() error {
	switch {
	case len(m.Group) > maxName:
		return fmt.Errorf("has a group with more than %d bytes", maxName)
	case len(m.Body) > maxQuestion:
		return fmt.Errorf("has a question with more than %d bytes", maxQuestion)
	}
	return nil
}

// errNotSealed says the same of a group that this host does not have: only members of a group may find out who has it.
var errNotSealed = errors.New("this host has no such group in failsafe mode, has not read the group's key, or has " +
	"another one: do both hosts " +
	"use the same ZooKeeper servers and root? 'zkelectd status' on that host says more")

// answer answers one message.
func (s *server) answer(r request, m sealed) sealed {
	refuse := func(err error) sealed { return sealed{Group: m.Group, Reason: err.Error()} }
	secrets := s.opt.Secrets(m.Group)
	if !verify(secrets, m.Seals, r.question(m.Group, m.Body)...) {
		return refuse(errNotSealed)
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
