package zk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/cluster"
)

// bareSession returns a session without the library, so that tests can check its state after each call.
func bareSession(t *testing.T, log io.Writer, servers ...string) *Session {
	t.Helper()
	s := newSession(Options{Servers: servers, Timeout: rollbackTimeout, dialer: Access{}.dialer(), Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	t.Cleanup(func() {
		s.cancel()
		s.goroutines.Wait()
	})
	return s
}

// A probe starts only if nothing else explains the hang-ups and no lease can be in force.
func TestShouldProbe(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		change func(*Session)
		probed bool
	}{
		"enough hang-ups for long enough": {func(*Session) {}, true},
		"more hang-ups":                   {func(s *Session) { s.hangUps++ }, true},
		"too few hang-ups":                {func(s *Session) { s.hangUps-- }, false},
		"a lease may be in force":         {func(s *Session) { s.longestTimeout++ }, false},
		"ended":                           {func(s *Session) { s.err = errors.New("closed") }, false},
		"connected":                       {func(s *Session) { s.connected = true }, false},
		"a probe is running":              {func(s *Session) { s.probing = true }, false},
		"never established":               {func(s *Session) { s.handshake.session = 0 }, false},
		"session id 1":                    {func(s *Session) { s.handshake.session = 1 }, true},
	} {
		s := &Session{hangUps: 3, longestTimeout: time.Second, disconnectedAt: now.Add(-time.Second - 1), handshake: handshake{session: 7}}
		c.change(s)
		if s.shouldProbe(now) != c.probed {
			t.Errorf("%s: probed: %t", name, !c.probed)
		}
	}
}

// The session ends when servers repeatedly know and refuse it, or when one does not know it.
func TestProbeResults(t *testing.T) {
	const hangUp, refuse, none = "hangs up", "has it", "does not have it"
	for _, c := range []struct {
		answers []string
		ended   string // a part of the session's error; empty if it does not end
		refused int
	}{
		{[]string{hangUp, hangUp, hangUp}, "", 0},
		{[]string{refuse}, "", 1},
		{[]string{refuse, refuse}, "", 2},
		{[]string{refuse, refuse, hangUp, refuse, refuse}, "", 2},
		{[]string{refuse, refuse, refuse}, "the servers refuse the session", 3},
		{[]string{none}, "the servers no longer have the session", 0},
	} {
		answers := make(chan string, 1)
		asked := make(chan []byte, 10)
		granted := rollbackTimeout // less each time
		server := newScriptedServer(t, func(_ *scriptedServer, conn net.Conn) {
			req, err := readPacket(conn)
			if err != nil {
				return
			}
			asked <- req
			switch <-answers {
			case refuse:
				granted -= time.Millisecond
				conn.Write(connectResponse(0x1234, granted))
				answerPings(conn)
			case none:
				conn.Write(connectResponse(0, 0))
			}
		})
		log := new(strings.Builder)
		s := bareSession(t, log, server.addr)
		s.handshake = handshake{session: 0x1234, password: bytes.Repeat([]byte{7}, passwordLen), timeout: rollbackTimeout}
		s.smallestGrant, s.longestTimeout = Grant{Timeout: rollbackTimeout}, rollbackTimeout
		for _, answer := range c.answers {
			s.hangUps, s.hungUp = hangUpsBeforeProbe, &wireConn{Conn: connTo{addr: server.addr}, s: s, addr: server.addr}
			if s.startProbe(); s.hangUps != 0 {
				t.Errorf("%q: %d hang-ups are left", c.answers, s.hangUps)
			}
			s.hangUps = hangUpsBeforeProbe
			s.startProbe() // only one runs at a time
			answers <- answer
			s.goroutines.Wait()
			s.hangUps = 0
			s.startProbe() // not before more hang-ups
			s.goroutines.Wait()
			if s.probing {
				t.Errorf("%q: it still probes", c.answers)
			}
		}
		if s.refusals != c.refused || len(asked) != len(c.answers) {
			t.Errorf("%q: %d refusals, %d requests", c.answers, s.refusals, len(asked))
		}
		if want := encodeConnect(rollbackTimeout, 0x1234, s.handshake.password); !bytes.Equal(<-asked, want) {
			t.Errorf("no request for session %x", want)
		}
		if want := rollbackTimeout - time.Duration(strings.Count(fmt.Sprint(c.answers), refuse))*time.Millisecond; s.Timeout() != want {
			t.Errorf("%q: the timeout is %s, not %s", c.answers, s.Timeout(), want)
		}
		switch {
		case c.ended == "" && s.err != nil:
			t.Errorf("%q: ended: %v", c.answers, s.err)
		case c.ended != "":
			contains(t, s.err, c.ended, "wiped, or restored from a backup")
			contains(t, errors.New(log.String()), "level=ERROR", "server="+server.addr, "session=0x1234", "wiped, or restored from a backup")
		}
		if s.gone != slices.Contains(c.answers, none) {
			t.Errorf("%q: gone: %t", c.answers, s.gone)
		}
	}
}

// A probe asks the address that hung up, not another one of the same name.
func TestProbeOfOneAddress(t *testing.T) {
	addresses, name, servers := newScriptedName(t, func(*scriptedServer, net.Conn) {}, serve)
	_, port, _ := net.SplitHostPort(name)
	d := nameOf(addresses...)
	s := bareSession(t, io.Discard, name)
	s.opt.dialer = d
	s.handshake = handshake{session: 0x1234, password: make([]byte, passwordLen), timeout: rollbackTimeout}
	conn, err := d.dial(t.Context(), "tcp", name)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	hungUp, other := servers[0], servers[1]
	if conn.RemoteAddr().String() != net.JoinHostPort(addresses[0], port) {
		hungUp, other = other, hungUp
	}
	for range 2 { // the turns of both addresses
		s.hangUps, s.hungUp = hangUpsBeforeProbe, &wireConn{Conn: conn, s: s, addr: name}
		s.startProbe()
		s.goroutines.Wait()
	}
	if n := other.conns.Load(); n != 0 || hungUp.conns.Load() < 2 {
		t.Errorf("%d probes went to another address of the name", n)
	}
}

// connTo is a connection to an address.
type connTo struct {
	net.Conn
	addr string
}

func (c connTo) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.addr))
}

// OnShrink calls its function for timeouts below the base, for an earlier one at once, and for no others.
func TestOnShrink(t *testing.T) {
	s := bareSession(t, io.Discard)
	var grants []Grant
	tell := func(g Grant) { grants = append(grants, g) }
	s.noteGrant(Grant{Timeout: 5}) // without a function
	s.OnShrink(5, tell)
	s.noteGrant(Grant{Timeout: 5})
	s.noteGrant(Grant{Timeout: 9})
	if len(grants) != 0 {
		t.Errorf("called with %+v", grants)
	}
	s.noteGrant(Grant{Server: "a:1", Timeout: 4, RequestedAt: 7})
	s.OnShrink(6, tell)
	s.noteGrant(Grant{Server: "b:2", Timeout: 5, RequestedAt: 8}) // not smaller than before, but below the base
	if want := []Grant{{"a:1", 4, 5, 7}, {"a:1", 4, 6, 7}, {"b:2", 5, 6, 8}}; !slices.Equal(grants, want) {
		t.Errorf("called with %+v, not %+v", grants, want)
	}
	if s.longestTimeout != 9 || s.Timeout() != 4 {
		t.Errorf("longest timeout %s, smallest timeout %s", s.longestTimeout, s.Timeout())
	}
}

// The current connection is the last one that was set. A session that has ended closes it and accepts no other.
func TestCurrentConnection(t *testing.T) {
	s := bareSession(t, io.Discard)
	socket := func() (*wireConn, net.Conn) {
		near, far := net.Pipe()
		t.Cleanup(func() { near.Close(); far.Close() })
		return &wireConn{Conn: near, s: s}, far
	}
	first, _ := socket()
	second, far := socket()
	if !s.setConn(first) || !s.setConn(second) {
		t.Fatal("a live session does not accept a connection")
	}
	s.connected = true
	if s.connClosed(first); s.conn != second || !s.Connected() || !s.lostAt.IsZero() || !s.disconnectedAt.IsZero() {
		t.Error("the loss of a former connection counts")
	}
	before := time.Now()
	if s.connClosed(second); s.conn != nil || s.Connected() || s.lostAt.Before(before) || s.disconnectedAt.Before(before) {
		t.Error("the loss of the connection does not count")
	}
	apart := s.disconnectedAt
	if s.markDisconnected(); s.disconnectedAt != apart {
		t.Error("lost twice")
	}
	s.setConn(second)
	s.connected = true
	s.end(errors.New("the first reason"))
	s.end(errors.New("the second reason"))
	if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection is not closed: %v", err)
	}
	select {
	case <-s.Done():
	default:
		t.Error("not done")
	}
	if s.Connected() || s.ctx.Err() == nil || s.setConn(first) || s.conn == first {
		t.Error("it accepts a connection after its end")
	}
	if err := s.Err(); !errors.Is(err, cluster.ErrSessionEnded) || !strings.HasSuffix(err.Error(), "the first reason") {
		t.Error(err)
	}
	s = bareSession(t, io.Discard)
	whole := fmt.Errorf("%w: in other words", cluster.ErrSessionEnded)
	if s.end(whole); !errors.Is(s.Err(), whole) {
		t.Error(s.Err())
	}
}

func TestOpenNeedsServersAndATimeout(t *testing.T) {
	for _, opt := range []Options{{Timeout: time.Second}, {Servers: []string{"a:1"}}, {Servers: []string{"a:1"}, Timeout: -1}} {
		if _, err := Open(t.Context(), opt); err == nil || !strings.Contains(err.Error(), "are required") {
			t.Errorf("%+v: %v", opt, err)
		}
	}
}

// After a handshake everything is read again; a disconnection is recorded; an expiry ends the session.
func TestSessionEvents(t *testing.T) {
	s := bareSession(t, io.Discard)
	s.arm(watch{"/a", false})
	s.connected = true
	s.event(zk.Event{Type: zk.EventSession, State: zk.StateConnecting})
	if len(s.own.wake) != 0 || len(s.armed) != 1 || s.TakeHints().All || !s.Connected() {
		t.Error("an irrelevant event has an effect")
	}
	for _, state := range []zk.State{zk.StateHasSession, zk.StateExpired, zk.StateDisconnected} { // the states in which a watch fires
		s.event(zk.Event{Type: zk.EventNodeDataChanged, State: state, Path: "/b"})
		if h := s.TakeHints(); h.All || !h.Has("/b") || len(s.armed) != 1 || !s.Connected() || s.gone {
			t.Errorf("a watch that fires in state %s changes the session", state)
		}
	}
	<-s.own.wake
	for range 2 { // the second one finds the first still pending
		s.event(zk.Event{Type: zk.EventSession, State: zk.StateHasSession})
	}
	if len(s.own.wake) != 1 || len(s.armed) != 0 || !s.TakeHints().All || s.TakeHints().All {
		t.Error("not everything is read again after a handshake")
	}
	s.connected = true
	s.event(zk.Event{Type: zk.EventSession, State: zk.StateDisconnected})
	if s.Connected() || s.disconnectedAt.IsZero() || s.gone || s.Err() != nil {
		t.Error("the disconnection is not recorded")
	}
	s.event(zk.Event{Type: zk.EventSession, State: zk.StateExpired})
	s.goroutines.Wait()
	if !s.gone || s.Err() == nil {
		t.Error("the expiry does not end the session")
	}
	contains(t, s.Err(), "expired, or closed from elsewhere")
}

// That there is no connection is logged, at first and after its loss, also where nothing depends on it, such as on a
// standby. Short interruptions are not.
func TestOutageIsLogged(t *testing.T) {
	t.Parallel()
	log := new(strings.Builder)
	s := bareSession(t, log)
	s.opt.Servers = []string{"zk1:2181"}
	fail := func() int {
		s.noteServerError("zk1:2181", errors.New("it hangs"))
		return strings.Count(log.String(), "no ZooKeeper server answers")
	}
	logged := 0
	for _, lost := range []bool{false, true} {
		if lost {
			s.handshake.session, s.connected = 7, true
			s.markDisconnected()
		}
		if fail() != logged {
			t.Errorf("lost %t: logged at once: %s", lost, log)
		}
		for i := range time.Duration(2) {
			s.reportAt = time.Now().Add(-1)
			logged++
			if n := fail(); n != logged || fail() != logged || !strings.Contains(log.String(), "zk1:2181: it hangs") {
				t.Errorf("lost %t: %d times: %s", lost, n, log)
			}
			if left := time.Until(s.reportAt); left < (i+1)*outageReport {
				t.Errorf("again after %s", left)
			}
		}
		if strings.Contains(log.String(), "since=") != lost {
			t.Errorf("lost %t: %s", lost, log)
		}
	}
}

// The first handshake establishes the session, and each later one is a reconnect. One without a session means that it
// has expired, which the library reports.
func TestHandshakeDone(t *testing.T) {
	s := bareSession(t, io.Discard, "a:1", "b:2")
	established := func() bool {
		select {
		case <-s.established:
			return true
		default:
			return false
		}
	}
	fail := func() {
		s.noteServerError("a:1", errors.New("refused"))
		s.noteHangUp(&wireConn{addr: "a:1"}, io.EOF)
		s.refusals = 2
	}
	check := func(what string, up, connected bool, reconnects int, granted time.Duration) {
		t.Helper()
		if established() != up || s.Connected() != connected || s.Reconnects() != reconnects || s.Timeout() != granted {
			t.Errorf("%s: up: %t, connected: %t, reconnects: %d, timeout: %s",
				what, established(), s.Connected(), s.Reconnects(), s.Timeout())
		}
		if s.failures != 0 || s.hangUps != 0 || s.refusals != 0 || len(s.serverErrors) != 0 {
			t.Errorf("%s: %d, %d, %d, %v", what, s.failures, s.hangUps, s.refusals, s.serverErrors)
		}
	}
	answered := func(h handshake, addr string, requestedAt time.Duration) {
		t.Helper()
		if err := s.noteGranted(h, addr, requestedAt); err != nil {
			t.Error(err)
		}
		s.handshakeDone(h)
	}
	check("at first", false, false, 0, 0)
	fail()
	answered(handshake{}, "a:1", 1)
	check("without a session", false, false, 0, 0)
	answered(handshake{session: 1, timeout: 4, password: []byte("p")}, "a:1", 1)
	check("the first", true, true, 0, 4)
	first := Grant{Server: "a:1", Timeout: 4, RequestedAt: 1}
	if s.SessionID() != 1 || string(s.Password()) != "p" || s.smallestGrant != first {
		t.Errorf("session %d, password %q, granted %+v", s.SessionID(), s.Password(), s.smallestGrant)
	}
	if s.noteGrant(Grant{Server: "b:2", Timeout: 4, RequestedAt: 2}); s.smallestGrant.Server != "a:1" {
		t.Errorf("granted %+v", s.smallestGrant)
	}
	fail()
	answered(handshake{session: 1, timeout: 5}, "b:2", 2)
	check("another", true, true, 1, 4)
	answered(handshake{session: 1, timeout: 3}, "b:2", 3)
	check("a smaller one", true, true, 2, 3)
	if s.longestTimeout != 5 || s.smallestGrant != (Grant{Server: "b:2", Timeout: 3, RequestedAt: 3}) {
		t.Errorf("longest timeout %s, smallest grant %+v", s.longestTimeout, s.smallestGrant)
	}
	fail()
	answered(handshake{}, "a:1", 4)
	check("its end", true, true, 2, 3)
}
