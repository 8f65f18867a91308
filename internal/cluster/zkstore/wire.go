package zkstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"zkelectd/internal/boottime"
)

// The few packets of ZooKeeper's wire format that go-zookeeper does not offer: the handshake, which it does not let
// callers see, and the closing of a session from outside.

const (
	passwordLen   = 16
	maxHandshake  = 1 << 10
	opCloseOnWire = -11
	opAuthOnWire  = 100
	xidAuth       = -4
	replyHeader   = 4 + 8 + 4 // xid, zxid, error code
)

// handshake is the server's answer to a connect request.
type handshake struct {
	timeout  time.Duration
	session  int64
	password []byte
}

// connectRequestSession reads the session id out of an encoded connect request, length prefix included.
func connectRequestSession(packet []byte) (int64, bool) {
	const at = 4 + 4 + 8 + 4 // length, protocol version, last zxid, timeout
	if len(packet) < at+8 {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(packet[at:])), true
}

// connectRequestZxid returns the last zxid that the client of an encoded connect request has seen, 0 if it is malformed.
func connectRequestZxid(packet []byte) int64 {
	const at = 4 + 4 // length, protocol version
	if len(packet) < at+8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(packet[at:]))
}

// parseHandshake reads a connect response, length prefix included. complete is false while bytes are missing.
func parseHandshake(packet []byte) (h handshake, complete bool, err error) {
	if len(packet) < 4 {
		return h, false, nil
	}
	n := int(binary.BigEndian.Uint32(packet))
	if n < 20 || n > maxHandshake {
		return h, false, fmt.Errorf("not a ZooKeeper server: a connect response of %d bytes", n)
	}
	if len(packet) < 4+n {
		return h, false, nil
	}
	body := packet[4 : 4+n]
	h.timeout = time.Duration(binary.BigEndian.Uint32(body[4:])) * time.Millisecond
	h.session = int64(binary.BigEndian.Uint64(body[8:]))
	size := int(int32(binary.BigEndian.Uint32(body[16:])))
	if size < 0 || 20+size > n {
		return h, false, errors.New("not a ZooKeeper server: malformed connect response")
	}
	h.password = bytes.Clone(body[20 : 20+size])
	return h, true, nil
}

// maxReply is far more than a reply of ZooKeeper's, whose server takes in 1 MB at once.
const maxReply = 16 << 20

// framing follows the lengths of what passes.
type framing struct {
	head []byte
	left int
}

// pass refuses what go-zookeeper would read in good faith: a reply that is shorter than its own header, over which it
// panics, or one of gigabytes, for which it would set memory aside.
func (f *framing) pass(b []byte) error {
	for len(b) > 0 {
		if f.left > 0 {
			n := min(f.left, len(b))
			f.left, b = f.left-n, b[n:]
			continue
		}
		n := min(4-len(f.head), len(b))
		f.head, b = append(f.head, b[:n]...), b[n:]
		if len(f.head) < 4 {
			return nil
		}
		size := binary.BigEndian.Uint32(f.head)
		if size < replyHeader || size > maxReply {
			return fmt.Errorf("not a ZooKeeper server: a reply of %d bytes", size)
		}
		f.head, f.left = f.head[:0], int(size)
	}
	return nil
}

func encodeConnect(timeout time.Duration, session int64, password []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(4+8+4+8+4+len(password)))
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint64(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(timeout.Milliseconds()))
	b = binary.BigEndian.AppendUint64(b, uint64(session))
	b = binary.BigEndian.AppendUint32(b, uint32(len(password)))
	return append(b, password...)
}

// ErrNoSuchSession says that a session to be closed had ended before, or that the password is not its own.
var ErrNoSuchSession = errors.New("the session has ended already, or the password is wrong")

// Ended is a session to be closed.
type Ended struct {
	Servers  []string
	Session  int64
	Password []byte
	Access   Access
	// Last is what the session is to end with; nil for nothing.
	Last *Last
}

// CloseSession ends a session from outside: its ephemerals vanish at once. Whoever calls it must know that nothing works
// on the strength of that session any more (S1). It tries the servers in turn until ctx is over.
func CloseSession(ctx context.Context, e Ended) error {
	// Only a server that is told to wants to know who asks; so a file that is gone does not stand in the way.
	who, unread := e.Access.Auth.read()
	u := undertaker{dial: e.Access.dialer(), who: who, session: e.Session, password: e.Password, last: e.Last}
	err := u.closeAnywhere(ctx, e.Servers)
	if e.Last != nil && e.Last.Refused != nil {
		e.Last.Refused = errors.Join(e.Last.Refused, unread)
	}
	if err != nil && !errors.Is(err, ErrNoSuchSession) {
		return errors.Join(err, unread)
	}
	return err
}

// undertaker closes a session over connections of its own.
type undertaker struct {
	dial     DialFunc
	who      identities
	session  int64
	password []byte
	timeout  time.Duration // to ask for; 0 for the default
	last     *Last         // to be sent before; nil for nothing
}

// closeTimeout bounds the closing at one server, so that one that is silent leaves the others their turn.
const closeTimeout = 5 * time.Second

func (u undertaker) closeAnywhere(ctx context.Context, servers []string) error {
	var errs []error
	for i, server := range servers {
		share := closeTimeout
		if limit, ok := ctx.Deadline(); ok {
			share = min(share, time.Until(limit)/time.Duration(len(servers)-i))
		}
		err := u.closeWithin(ctx, share, server)
		if err == nil || errors.Is(err, ErrNoSuchSession) {
			return err
		}
		errs = append(errs, fmt.Errorf("%s: %w", server, err))
	}
	return fmt.Errorf("cannot close session 0x%x: %w", u.session, errors.Join(errs...))
}

// closeTries is how often a server is asked that hangs up. One that speaks TLS does so now and then before its answer is
// out, and whether a session has ended must not be a matter of luck.
const closeTries = 5

func (u undertaker) closeWithin(ctx context.Context, limit time.Duration, server string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for range closeTries {
		if err = u.closeAt(ctx, server); !errors.Is(err, io.EOF) {
			return err
		}
	}
	return err
}

func (u undertaker) closeAt(ctx context.Context, server string) error {
	conn, err := u.dial(ctx, "tcp", server)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if _, err := u.attach(conn); err != nil {
		return err
	}
	for _, i := range u.who.all {
		if err := ask(conn, xidAuth, opAuthOnWire, encodeAuth(i)); err != nil {
			return fmt.Errorf("authentication: %w", err)
		}
	}
	if err := u.last.send(conn); err != nil {
		return err
	}
	// The server answers once the ephemerals are gone, then hangs up.
	if err := ask(conn, 2, opCloseOnWire, nil); err != nil {
		return fmt.Errorf("closeSession: %w", err)
	}
	return nil
}

// attachAt takes the session over at a server and hangs up. It returns the timeout that was granted.
func (u undertaker) attachAt(ctx context.Context, server string) (Shrunk, error) {
	conn, err := u.dial(ctx, "tcp", server)
	if err != nil {
		return Shrunk{}, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	asked := boottime.Now()
	h, err := u.attach(conn)
	return Shrunk{Server: server, Timeout: h.timeout, Asked: asked}, err
}

// ask sends one request and waits for the server's consent.
func ask(conn net.Conn, xid, op int32, body []byte) error {
	_, err := exchange(conn, xid, op, body)
	return err
}

// exchange sends one request and returns what follows the header of the reply to it.
func exchange(conn net.Conn, xid, op int32, body []byte) ([]byte, error) {
	b := binary.BigEndian.AppendUint32(nil, uint32(4+4+len(body)))
	b = binary.BigEndian.AppendUint32(b, uint32(xid))
	b = binary.BigEndian.AppendUint32(b, uint32(op))
	if _, err := conn.Write(append(b, body...)); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, fmt.Errorf("no answer: %w", err)
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < replyHeader || n > maxLastReply {
		return nil, fmt.Errorf("not a ZooKeeper server: a reply of %d bytes", n)
	}
	reply := make([]byte, n)
	if _, err := io.ReadFull(conn, reply); err != nil {
		return nil, fmt.Errorf("no answer: %w", err)
	}
	if code := int32(binary.BigEndian.Uint32(reply[12:])); code != 0 {
		return nil, fmt.Errorf("refused with code %d", code)
	}
	return reply[replyHeader:], nil
}

func encodeAuth(who identity) []byte {
	b := binary.BigEndian.AppendUint32(nil, 0) // a type that no server looks at
	for _, part := range [][]byte{[]byte(who.scheme), who.secret} {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(part))), part...)
	}
	return b
}

// attach takes the session over, as a client that has seen nothing: no server refuses it for what it has seen.
func (u undertaker) attach(conn net.Conn) (handshake, error) {
	timeout := u.timeout
	if timeout == 0 {
		timeout = 10 * time.Second
	}
	if _, err := conn.Write(encodeConnect(timeout, u.session, u.password)); err != nil {
		return handshake{}, err
	}
	var packet []byte
	for {
		h, complete, err := parseHandshake(packet)
		if err != nil {
			return h, err
		}
		if complete && h.session != u.session {
			return h, ErrNoSuchSession
		}
		if complete {
			return h, nil
		}
		buf := make([]byte, 256)
		n, err := conn.Read(buf)
		if err != nil {
			return h, fmt.Errorf("no connect response: %w", err)
		}
		packet = append(packet, buf[:n]...)
	}
}

// isClose tells whether an encoded request is closeSession.
func isClose(packet []byte) bool {
	return len(packet) >= 12 && int32(binary.BigEndian.Uint32(packet[8:])) == opCloseOnWire
}

// answersClose tells whether a reply without its length prefix, which go-zookeeper reads apart, is the server's consent
// to the closeSession with this xid. Where a reply comes in pieces it is missed, which costs only a second closing.
func answersClose(reply, xid []byte) bool {
	return len(reply) == replyHeader && bytes.Equal(reply[:4], xid) && binary.BigEndian.Uint32(reply[12:]) == 0
}
