package zk

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// acquire makes s a holder of leadership, and returns its FINAL.
func acquire(t *testing.T, s *Session, p cluster.Paths) []cluster.Op {
	t.Helper()
	all := createAllZnodes(t, s, p)
	self := strings.TrimPrefix(all[5], p.Election()+"/")
	_, stat, err := s.Get(t.Context(), p.Leader(), false)
	if err != nil {
		t.Fatal(err)
	}
	return p.FinalTx(cluster.HeldVersions{Self: self, Fence: stat.Version}, cluster.Fence{Term: 7, State: cluster.FenceReleased, Lost: true})
}

// hasLeft reports whether FINAL has taken effect.
func hasLeft(t *testing.T, s *Session, p cluster.Paths) bool {
	t.Helper()
	data, stat, err := s.Get(t.Context(), p.Leader(), false)
	if err != nil {
		t.Fatal(err)
	}
	f := cluster.ReadFence(p.Leader(), data, stat, true)
	return f.Readable() && f.Record.State == cluster.FenceReleased && f.Record.Term == 7
}

// The release for a dead holder is sent with the holder's own credentials. If it fails, the session is closed all the same.
func TestFinalTx(t *testing.T) {
	access := Access{Auth: credentialsFile(t, "zkelectd:right"), ACL: ACLPrivate}
	reader := open(t, Options{Access: access})
	for name, c := range map[string]struct {
		change func(*SessionHandle)
		want   error
		op     string
	}{
		"applied":         {func(*SessionHandle) {}, nil, ""},
		"another version": {func(e *SessionHandle) { e.Finals[0].Ops[1].Version++ }, cluster.ErrBadVersion, "set "},
		"current is gone": {func(e *SessionHandle) { e.Finals[0].Ops[len(e.Finals[0].Ops)-1].Path += "x" }, cluster.ErrNoNode, "delete "},
		"left already":    {func(e *SessionHandle) { e.Finals[0].Ops[0].Path += "x" }, cluster.ErrNoNode, "delete "},
		"no credentials":  {func(e *SessionHandle) { e.Access.Auth.Path = filepath.Join(t.TempDir(), "gone") }, cluster.ErrNoAuth, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Options{Access: access})
			p := root(t, s)
			s.own.CloseWith(acquire(t, s, p)...)
			e := s.Handle()
			s.end(errors.New("dead")) // alive, it would reattach to its session
			c.change(&e)
			if err := CloseSession(t.Context(), e); err != nil {
				t.Fatalf("the session was not closed: %v", err)
			}
			if e.Finals[0].Applied != (c.want == nil) || hasLeft(t, reader, p) != (c.want == nil) || !errors.Is(e.Finals[0].Err, c.want) {
				t.Errorf("applied %v: %v, want %v", e.Finals[0].Applied, e.Finals[0].Err, c.want)
			}
			if c.want != nil {
				contains(t, e.Finals[0].Err, c.op)
			}
			for _, path := range []string{p.Current(), p.Node("n1")} {
				if _, _, err := reader.Get(t.Context(), path, false); !errors.Is(err, cluster.ErrNoNode) {
					t.Errorf("%s: %v", path, err)
				}
			}
		})
	}
}

// lostReplyConn is a connection that is lost when the reply to the request with this xid arrives.
type lostReplyConn struct {
	net.Conn
	xid  uint32
	done *atomic.Bool
	next *atomic.Bool
}

func (c lostReplyConn) Write(b []byte) (int, error) {
	if len(b) > 8 && binary.BigEndian.Uint32(b[4:]) == c.xid && !c.done.Load() {
		c.next.Store(true)
	}
	return c.Conn.Write(b)
}

func (c lostReplyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.next.Swap(false) {
		c.done.Store(true)
		return 0, io.EOF
	}
	return n, err
}

// A release whose reply was lost does not count as refused.
func TestFinalTxWithUnknownOutcome(t *testing.T) {
	s := open(t, Options{})
	p := root(t, s)
	last := &FinalTx{Ops: acquire(t, s, p)}
	e := s.Handle()
	s.end(errors.New("dead"))
	var done, next atomic.Bool
	dials := 0
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials++
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return lostReplyConn{conn, 1, &done, &next}, err
	}
	u := sessionCloser{session: e.Session, password: e.Password, finals: []*FinalTx{last}, dial: dial}
	if err := u.closeAnywhere(t.Context(), e.Servers); err != nil {
		t.Fatal(err)
	}
	if dials != 2 || last.Applied || !errors.Is(last.Err, cluster.ErrUnknown) {
		t.Errorf("%d connections, applied %v: %v", dials, last.Applied, last.Err)
	}
	if !hasLeft(t, open(t, Options{}), p) {
		t.Error("FINAL did not take effect")
	}
}

// Close releases leadership for an owner that is alive but can no longer release it, regardless of the session's state.
func TestCloseReleases(t *testing.T) {
	for name, end := range map[string]func(*Session){
		"connected":             func(*Session) {},
		"ended on this side":    func(s *Session) { s.end(errors.New("a write got no reply")) },
		"unknown to the server": nil,
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Options{Timeout: 60 * time.Second})
			p := root(t, s)
			ops := acquire(t, s, p)
			s.own.CloseWith(ops...)
			if end == nil {
				s.end(errors.New("dead"))
				e := s.Handle()
				e.Finals = nil
				if err := CloseSession(t.Context(), e); err != nil {
					t.Fatal(err)
				}
			} else {
				end(s)
			}
			closeSession(t, s)
			if hasLeft(t, open(t, Options{}), p) != (end != nil) {
				t.Error("released:", end == nil)
			}
			if !isMissing(t, p.Current()) {
				t.Error("current exists after Close")
			}
		})
	}
	t.Run("taken back", func(t *testing.T) {
		s := open(t, Options{})
		p := root(t, s)
		s.own.CloseWith(acquire(t, s, p)...)
		s.own.CloseWith()
		closeSession(t, s)
		if hasLeft(t, open(t, Options{}), p) {
			t.Error("released")
		}
	})
}

// A malformed reply to a transaction does not count as success.
func TestRefusals(t *testing.T) {
	ops := []cluster.Op{{Kind: cluster.OpDelete, Path: "/a"}, {Kind: cluster.OpSet, Path: "/b"}}
	result := func(codes ...int32) []byte {
		var b []byte
		for _, code := range codes {
			b = append(binary.BigEndian.AppendUint32(b, 0xffffffff), 0)
			b = binary.BigEndian.AppendUint32(b, uint32(code))
			b = binary.BigEndian.AppendUint32(b, uint32(code))
		}
		return b
	}
	for _, c := range []struct {
		reply []byte
		want  string
	}{
		{nil, "too short"}, {[]byte{0, 0, 0, 2}, "too short"}, {result(), "too short"},
		{result(0, -103), "set /b: " + cluster.ErrBadVersion.Error()}, {result(-101, -2), "delete /a: " + cluster.ErrNoNode.Error()},
		{result(0, -125), "set /b: a quota is used up"}, {result(0, -99), "set /b: refused with code -99"}, {result(0, 0), "without a reason"}, {result(0), "without a reason"},
	} {
		contains(t, refusalOf(ops, c.reply), c.want)
	}
}
