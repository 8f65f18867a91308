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

// The few packets of ZooKeeper's wire format that go-zookeeper does not expose: the handshake, and closing a session from
// outside.

const (
	passwordLen    = 16
	maxHandshake   = 1 << 10
	wireOpClose    = -11
	wireOpPing     = 11
	wireOpAuth     = 100
	xidAuth        = -4
	replyHeaderLen = 4 + 8 + 4 // xid, zxid, error code
)

// handshake is the server's answer to a connect request.
type handshake struct {
	timeout  time.Duration
	session  int64
	password []byte
}

// connectRequestSession returns the session id in an encoded connect request with its length prefix. ok is false if the
// request is malformed.
func connectRequestSession(packet []byte) (id int64, ok bool) {
	const at = 4 + 4 + 8 + 4 // length, protocol version, last zxid, timeout
	if len(packet) < at+8 {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(packet[at:])), true
}

// connectRequestZxid returns the last zxid that the client has seen, from an encoded connect request with its length prefix.
// It returns 0 if the request is malformed.
func connectRequestZxid(packet []byte) int64 {
	const at = 4 + 4 // length, protocol version
	if len(packet) < at+8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(packet[at:]))
}

// parseHandshake parses a connect response with its length prefix. complete is false if packet is only the beginning of one.
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

// maxReply, in bytes, is far more than any reply of a ZooKeeper server, which by default accepts at most 1 MiB.
const maxReply = 16 << 20

// frameChecker checks the lengths of the replies in a byte stream.
type frameChecker struct {
	header    []byte
	remaining int
}

// check returns an error for replies that go-zookeeper does not guard against: one that is shorter than its header, which
// would make it panic, and one of gigabytes, for which it would allocate memory. b is the next part of the stream.
func (f *frameChecker) check(b []byte) error {
	for len(b) > 0 {
		if f.remaining > 0 {
			n := min(f.remaining, len(b))
			f.remaining, b = f.remaining-n, b[n:]
			continue
		}
		n := min(4-len(f.header), len(b))
		f.header, b = append(f.header, b[:n]...), b[n:]
		if len(f.header) < 4 {
			return nil
		}
		size := binary.BigEndian.Uint32(f.header)
		if size < replyHeaderLen || size > maxReply {
			return fmt.Errorf("not a ZooKeeper server: a reply of %d bytes", size)
		}
		f.header, f.remaining = f.header[:0], int(size)
	}
	return nil
}

// between reports whether the stream is at the beginning of a reply.
func (f *frameChecker) between() bool { return f.remaining == 0 && len(f.header) == 0 }

// wireEventDeleted is the event that ends all watches on a znode.
const wireEventDeleted = 2

// encodeUnwatch encodes an event that makes go-zookeeper forget its watches on a znode. Unlike those of a server, it has no state.
func encodeUnwatch(path string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(replyHeaderLen+4+4+4+len(path)))
	b = binary.BigEndian.AppendUint32(b, 0xffffffff)         // the xid of events
	b = binary.BigEndian.AppendUint64(b, 0xffffffffffffffff) // no zxid
	b = binary.BigEndian.AppendUint32(b, 0)                  // no error
	b = binary.BigEndian.AppendUint32(b, wireEventDeleted)
	b = binary.BigEndian.AppendUint32(b, 0xffffffff) // zk.StateUnknown
	b = binary.BigEndian.AppendUint32(b, uint32(len(path)))
	return append(b, path...)
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

// ErrNoSuchSession is returned if the session to be closed has already ended, or if its password is wrong.
var ErrNoSuchSession = errors.New("the session has already ended, or its password is wrong")

// SessionHandle identifies a session to be closed from outside, and its servers.
type SessionHandle struct {
	Servers  []string
	Session  int64
	Password []byte
	Access   Access
	// Finals are the transactions to send first. CloseSession stores the outcome in each.
	Finals []*FinalTx
}

// CloseSession ends a session from outside, so that its ephemerals vanish at once. The caller must know that no work relies on
// the session any more (S1). It tries the servers in turn until ctx is done. It returns [ErrNoSuchSession] if a server no
// longer has the session.
func CloseSession(ctx context.Context, h SessionHandle) error {
	// Most servers close a session without authentication, so an unreadable file is not an error yet.
	ids, authErr := h.Access.Auth.read()
	u := sessionCloser{dial: h.Access.dialer(), identities: ids, session: h.Session, password: h.Password, finals: h.Finals}
	err := u.closeAnywhere(ctx, h.Servers)
	for _, f := range h.Finals {
		if f.Err != nil {
			f.Err = errors.Join(f.Err, authErr)
		}
	}
	if err != nil && !errors.Is(err, ErrNoSuchSession) {
		return errors.Join(err, authErr)
	}
	return err
}

// sessionCloser closes a session over its own connections.
type sessionCloser struct {
	dial       DialFunc
	identities identities
	session    int64
	password   []byte
	timeout    time.Duration // to request; 0 for the default
	finals     []*FinalTx    // to send first
}

// closeTimeout limits the attempt at one server, so that a silent server leaves time for the others.
const closeTimeout = 5 * time.Second

func (u sessionCloser) closeAnywhere(ctx context.Context, servers []string) error {
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

// closeTries is how often a server that hangs up is tried. With TLS a server sometimes hangs up before it has sent its reply,
// and that must not decide whether the session is reported as closed.
const closeTries = 5

func (u sessionCloser) closeWithin(ctx context.Context, limit time.Duration, server string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for range closeTries {
		if err = u.closeAt(ctx, server); !errors.Is(err, io.EOF) {
			return err
		}
	}
	return err
}

func (u sessionCloser) closeAt(ctx context.Context, server string) error {
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
	for _, i := range u.identities.all {
		if err := call(conn, xidAuth, wireOpAuth, encodeAuth(i)); err != nil {
			return fmt.Errorf("authentication: %w", err)
		}
	}
	if err := sendFinals(conn, u.finals); err != nil {
		return err
	}
	// The server replies when the ephemerals are gone, then hangs up.
	if err := call(conn, 2, wireOpClose, nil); err != nil {
		return fmt.Errorf("closeSession: %w", err)
	}
	return nil
}

// attachAt attaches to the session at a server and hangs up. It returns the timeout that the server granted.
func (u sessionCloser) attachAt(ctx context.Context, server string) (Grant, error) {
	conn, err := u.dial(ctx, "tcp", server)
	if err != nil {
		return Grant{}, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	requestedAt := boottime.Now()
	h, err := u.attach(conn)
	return Grant{Server: server, Timeout: h.timeout, RequestedAt: requestedAt}, err
}

// call sends one request and waits for its reply.
func call(conn net.Conn, xid, op int32, body []byte) error {
	_, err := roundTrip(conn, xid, op, body)
	return err
}

// roundTrip sends one request and returns the reply without its header.
func roundTrip(conn net.Conn, xid, op int32, body []byte) ([]byte, error) {
	if err := writeRequest(conn, xid, op, body); err != nil {
		return nil, err
	}
	return readReply(conn)
}

func writeRequest(conn net.Conn, xid, op int32, body []byte) error {
	b := binary.BigEndian.AppendUint32(nil, uint32(4+4+len(body)))
	b = binary.BigEndian.AppendUint32(b, uint32(xid))
	b = binary.BigEndian.AppendUint32(b, uint32(op))
	_, err := conn.Write(append(b, body...))
	return err
}

// readReply reads one reply and returns it without its header.
func readReply(conn net.Conn) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, fmt.Errorf("no answer: %w", err)
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < replyHeaderLen || n > maxFinalReply {
		return nil, fmt.Errorf("not a ZooKeeper server: a reply of %d bytes", n)
	}
	reply := make([]byte, n)
	if _, err := io.ReadFull(conn, reply); err != nil {
		return nil, fmt.Errorf("no answer: %w", err)
	}
	if code := int32(binary.BigEndian.Uint32(reply[12:])); code != 0 {
		return nil, fmt.Errorf("refused with code %d", code)
	}
	return reply[replyHeaderLen:], nil
}

func encodeAuth(id identity) []byte {
	b := binary.BigEndian.AppendUint32(nil, 0) // the type, which servers ignore
	for _, part := range [][]byte{[]byte(id.scheme), id.secret} {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(part))), part...)
	}
	return b
}

// attach attaches to the session as a client that has seen nothing, so that a server with older data does not refuse it.
func (u sessionCloser) attach(conn net.Conn) (handshake, error) {
	h, err := u.shakeHands(conn)
	if err == nil && h.session != u.session {
		return h, ErrNoSuchSession
	}
	return h, err
}

// shakeHands sends the connect request for the session, 0 for a new one, and returns the server's answer.
func (u sessionCloser) shakeHands(conn net.Conn) (handshake, error) {
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
		if complete || err != nil {
			return h, err
		}
		buf := make([]byte, 256)
		n, err := conn.Read(buf)
		if err != nil {
			return h, fmt.Errorf("no connect response: %w", err)
		}
		packet = append(packet, buf[:n]...)
	}
}

// isCloseRequest reports whether an encoded request is closeSession.
func isCloseRequest(packet []byte) bool {
	return len(packet) >= 12 && int32(binary.BigEndian.Uint32(packet[8:])) == wireOpClose
}

// isPing reports whether an encoded request is a ping.
func isPing(packet []byte) bool {
	return len(packet) == 12 && int32(binary.BigEndian.Uint32(packet[8:])) == wireOpPing
}

// isCloseReply reports whether a reply, without its length prefix (which go-zookeeper reads separately), confirms the
// closeSession with this xid. A reply that arrives in pieces is not recognized, which costs only a second close.
func isCloseReply(reply, xid []byte) bool {
	return len(reply) == replyHeaderLen && bytes.Equal(reply[:4], xid) && binary.BigEndian.Uint32(reply[12:]) == 0
}
