package zk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/test/faultproxy"
)

func create(path string, ephemeral bool) cluster.Op {
	return cluster.Op{Kind: cluster.OpCreate, Path: path, Data: []byte("x"), Ephemeral: ephemeral}
}

func TestTimeoutIsNegotiated(t *testing.T) {
	s := open(t, Options{Timeout: 10 * time.Hour})
	if got, want := s.Timeout(), 600*100*time.Millisecond; got != want {
		t.Errorf("negotiated %s, the server's maximum is %s", got, want)
	}
	if s.SessionID() == 0 || len(s.Password()) == 0 {
		t.Error("no session id or password")
	}
}

func TestNoServerAnswers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refusing := l.Addr().String()
	l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = Open(ctx, Options{Servers: []string{refusing, "no.such.host.invalid:2181"}, Timeout: 6 * time.Second})
	contains(t, err, refusing, "connection refused", "no.such.host.invalid", "no ZooKeeper server answers")
}

// Requests that go-zookeeper has queued must not run in a session that it opens after the first has expired.
func TestNothingRunsInASecondSession(t *testing.T) {
	px := faultproxy.ForTest(t, shared.Addr())
	s := open(t, Options{Servers: []string{px.Addr()}, Timeout: time.Second})
	p := root(t, s)
	px.SetMode(faultproxy.Refuse)
	eventually(t, "the loss of the connection", func() bool { return !s.Connected() })
	if _, err := s.Do(t.Context(), create(p.Root+"/queued", true)); !errors.Is(err, cluster.ErrNotSent) {
		t.Errorf("a write without a connection: %v", err)
	}
	if err := CloseSession(t.Context(), SessionHandle{Servers: []string{shared.Addr()}, Session: s.SessionID(), Password: s.Password()}); err != nil {
		t.Fatal(err)
	}
	px.SetMode(faultproxy.Pass)
	eventually(t, "the end of the session", ended(s))
	if !errors.Is(s.Err(), cluster.ErrSessionEnded) {
		t.Errorf("ended with %v", s.Err())
	}
	_, _, err := open(t, Options{}).Get(t.Context(), p.Root+"/queued", false)
	if !errors.Is(err, cluster.ErrNoNode) {
		t.Errorf("the queued write ran: %v", err)
	}
}

// Other groups depend on the session, so a write without a reply does not end it. Sync waits until nothing of it can follow.
func TestUnansweredWriteIsUnknown(t *testing.T) {
	px := faultproxy.ForTest(t, shared.Addr())
	s := open(t, Options{Servers: []string{px.Addr()}})
	p := root(t, s)
	px.SetMode(faultproxy.HalfOpen)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := s.Do(ctx, create(p.Root+"/late", false)); !errors.Is(err, cluster.ErrUnknown) {
		t.Errorf("without a reply: %v", err)
	}
	if s.Err() != nil {
		t.Fatalf("the session ended: %v", s.Err())
	}
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for range 2 { // what could not be settled is settled by the next reader
		if err := s.own.Settle(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("sync does not wait for the write: %v", err)
		}
	}
	px.SetMode(faultproxy.Pass)
	px.Reset(false)
	if err := s.own.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Get(t.Context(), p.Root+"/late", false); err != nil {
		t.Errorf("the write is not visible after a sync: %v", err)
	}
}

func TestHintsLoseNoPath(t *testing.T) {
	s, other := open(t, Options{}), open(t, Options{})
	p := root(t, s)
	s.TakeHints()
	want := make(map[string]bool)
	// More than the six events that the library buffers, all of them for znodes that do not exist yet.
	for i := range 50 {
		path := fmt.Sprintf("%s/x%d", p.Root, i)
		if _, _, err := s.Get(t.Context(), path, true); !errors.Is(err, cluster.ErrNoNode) {
			t.Fatal(err)
		}
		want[path] = true
	}
	for path := range want {
		if _, err := other.Do(t.Context(), create(path, false)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all hints", func() bool {
		for path := range s.TakeHints().Paths {
			delete(want, path)
		}
		return len(want) == 0
	})
}

// After a failed read the watch must be set by the next read. A watch on a missing znode is set.
func TestWatchesOfFailedReads(t *testing.T) {
	owner, s := open(t, Options{Access: Access{Auth: credentialsFile(t, "zkelectd:secret"), ACL: ACLPrivate}}), open(t, Options{})
	p := root(t, owner)
	armed := func(path string, children bool) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.armed[watch{path, children}] != nil
	}
	for _, c := range []struct {
		path           string
		want           error
		data, children bool
	}{{p.Leader(), cluster.ErrNoAuth, false, false}, {p.Root + "/none", cluster.ErrNoNode, true, false}, {"/", nil, true, true}} {
		for _, watched := range []bool{false, true} {
			_, _, err := s.Get(t.Context(), c.path, watched)
			_, _, listErr := s.Children(t.Context(), c.path, watched)
			if !errors.Is(err, c.want) || !errors.Is(listErr, c.want) {
				t.Errorf("%s: %v, %v", c.path, err, listErr)
			}
			if armed(c.path, false) != (watched && c.data) || armed(c.path, true) != (watched && c.children) {
				t.Errorf("%s, watched: %t: armed: %t, %t", c.path, watched, armed(c.path, false), armed(c.path, true))
			}
		}
	}
}

// What a watch has reported as deleted is read in one round trip, with a watch: a candidate waits for that. So is what was
// created after that.
func TestReadAfterADeletionTakesOneRoundTrip(t *testing.T) {
	const exists, getData = 3, 4
	var asked opRecorder
	s, other := open(t, Options{dialer: dialBy(asked.dial)}), open(t, Options{})
	path := root(t, s).Root + "/x"
	reads := func(want error) [2]int {
		t.Helper()
		before := [2]int{asked.count(exists), asked.count(getData)}
		if _, _, err := s.Get(t.Context(), path, true); !errors.Is(err, want) {
			t.Fatal(err)
		}
		return [2]int{asked.count(exists) - before[0], asked.count(getData) - before[1]}
	}
	if got := reads(cluster.ErrNoNode); got != [2]int{1, 1} {
		t.Errorf("what was never there: %v", got)
	}
	for _, c := range []struct {
		op       cluster.Op
		readable error
		want     [2]int
	}{
		{create(path, false), nil, [2]int{0, 1}},
		{cluster.Op{Kind: cluster.OpDelete, Path: path}, cluster.ErrNoNode, [2]int{1, 0}},
		{create(path, false), nil, [2]int{0, 1}},
		{cluster.Op{Kind: cluster.OpSet, Path: path}, nil, [2]int{0, 1}},
	} {
		s.TakeHints()
		if _, err := other.Do(t.Context(), c.op); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a hint", func() bool { return s.TakeHints().Has(path) })
		if got := reads(c.readable); got != c.want {
			t.Errorf("after %+v: %v times exists and getData, want %v", c.op, got, c.want)
		}
	}
	// Created again before it is read: the watch is set, and what is there is read.
	for _, op := range []cluster.Op{{Kind: cluster.OpDelete, Path: path, Version: 1}, create(path, false)} {
		if _, err := other.Do(t.Context(), op); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "a hint", func() bool { return s.TakeHints().Has(path) })
	if got := reads(nil); got != [2]int{1, 1} {
		t.Errorf("what was created again: %v", got)
	}
	if _, err := other.Do(t.Context(), cluster.Op{Kind: cluster.OpSet, Path: path}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a hint of the watch that exists has set", func() bool { return s.TakeHints().Has(path) })
}

func TestPasswordIsNotLogged(t *testing.T) {
	var log bytes.Buffer
	s := open(t, Options{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), Access: Access{Auth: credentialsFile(t, "user:secret"), ACL: ACLPrivate}})
	root(t, s)
	closeSession(t, s)
	if bytes.Contains(log.Bytes(), s.Password()) || bytes.Contains(log.Bytes(), []byte("secret")) {
		t.Errorf("logged: %s", log.String())
	}
}

func TestCloseTwice(t *testing.T) {
	s := open(t, Options{})
	closeSession(t, s)
	closeSession(t, s)
	if _, _, err := s.Get(t.Context(), "/", true); !errors.Is(err, cluster.ErrSessionEnded) {
		t.Errorf("a read after close: %v", err)
	}
}

// Names are resolved again at each dial.
func TestNamesAreResolvedAtEachDial(t *testing.T) {
	px := faultproxy.ForTest(t, shared.Addr())
	d := nameOf()
	var names atomic.Int32
	d.lookup = func(_ context.Context, _, host string) ([]netip.Addr, error) {
		names.Add(1)
		if host != "zk.example" {
			t.Errorf("looked up %s", host)
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	_, port, _ := net.SplitHostPort(px.Addr())
	s := open(t, Options{Servers: []string{"zk.example:" + port}, dialer: d})
	before := names.Load()
	px.Reset(false)
	eventually(t, "a second look-up", func() bool { return names.Load() > before })
	eventually(t, "the reconnect", s.Connected)
}

// The limit of plausible terms relies on the server's time of the last write: it is the same for every reader, and later after
// each write of the data.
func TestAZnodeCarriesTheTimeOfItsLastWrite(t *testing.T) {
	s, other := open(t, Options{}), open(t, Options{})
	p := root(t, s)
	stat := func(s *Session) cluster.Stat {
		t.Helper()
		_, stat, err := s.Get(t.Context(), p.Leader(), false)
		if err != nil {
			t.Fatal(err)
		}
		return stat
	}
	created := stat(s)
	if age := time.Since(created.Time); age < -time.Second || age > time.Minute {
		t.Errorf("written %s ago, by the server's time", age)
	}
	eventually(t, "a later time", func() bool {
		_, err := s.Do(t.Context(), cluster.Op{Kind: cluster.OpCheck, Path: p.Root, Version: cluster.AnyVersion},
			cluster.Op{Kind: cluster.OpSet, Path: p.Leader(), Version: cluster.AnyVersion, Data: []byte("x")})
		return err == nil && stat(s).Time.After(created.Time)
	})
	if mine, theirs := stat(s), stat(other); mine != theirs {
		t.Errorf("one reads %v, another %v", mine, theirs)
	}
}

// Only who knows the password ends a session; its ephemeral znodes are gone with the reply, and its owner can write nothing more.
func TestStolenSessionEndsForGood(t *testing.T) {
	owner, watcher := open(t, Options{}), open(t, Options{})
	p := root(t, owner)
	path := p.Root + "/mine"
	if _, err := owner.Do(t.Context(), create(path, true)); err != nil {
		t.Fatal(err)
	}
	if err := CloseSession(t.Context(), SessionHandle{Servers: []string{shared.Addr()}, Session: owner.SessionID(), Password: []byte("wrong password!!")}); !errors.Is(err, ErrNoSuchSession) {
		t.Errorf("with a wrong password: %v", err)
	}
	handle := SessionHandle{Servers: []string{shared.Addr()}, Session: owner.SessionID(), Password: owner.Password()}
	if err := CloseSession(t.Context(), handle); err != nil && !errors.Is(err, ErrNoSuchSession) { // its reply may be lost
		t.Fatal(err)
	}
	if _, _, err := watcher.Get(t.Context(), path, false); !errors.Is(err, cluster.ErrNoNode) {
		t.Errorf("the ephemeral exists after the reply to closeSession: %v", err)
	}
	eventually(t, "the end of the session", ended(owner))
	if _, err := owner.Do(t.Context(), create(p.Root+"/late", true)); !errors.Is(err, cluster.ErrSessionEnded) {
		t.Errorf("a write after the end: %v", err)
	}
	if err := CloseSession(t.Context(), handle); !errors.Is(err, ErrNoSuchSession) {
		t.Errorf("closed twice: %v", err)
	}
}

// A write whose reply is lost may have been applied: it must not count as one that was not sent (S1). The session goes
// on.
func TestLostReplyIsUnknown(t *testing.T) {
	px := faultproxy.ForTest(t, shared.Addr())
	s := open(t, Options{Servers: []string{px.Addr()}})
	p := root(t, s)
	px.SetMode(faultproxy.HalfOpen)
	result := make(chan error, 1)
	go func() {
		_, err := s.Do(t.Context(), create(p.Root+"/applied", false))
		result <- err
	}()
	other := open(t, Options{})
	eventually(t, "the write", func() bool {
		_, _, err := other.Get(t.Context(), p.Root+"/applied", false)
		return err == nil
	})
	px.SetMode(faultproxy.Pass)
	px.Reset(false)
	if err := <-result; !errors.Is(err, cluster.ErrUnknown) {
		t.Errorf("applied, but its reply was lost: %v", err)
	}
	eventually(t, "the reconnect", s.Connected)
	if s.Err() != nil {
		t.Errorf("the session ended: %v", s.Err())
	}
}
