package zk

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"zkelectd/internal/sys/boottime"
)

// The few packets of ZooKeeper's wire format that go-zookeeper does not expose: the handshake, and closing a session
// from outside.

const (
	passwordLen = 16
	wireOpClose = -11
	wireOpPing  = 11
	wireOpAuth  = 100
	xidAuth     = -4
)

// handshake is the server's answer to a connect request.
type handshake struct {
	timeout  time.Duration
	session  int64
	password []byte
}

// parseConnect returns the session id and the last zxid that the client has seen, from an encoded connect request with
// its length prefix. ok is false if the request is malformed.
func parseConnect(packet []byte) (session, zxid int64, ok bool) {
	f := fields{rest: packet}
	f.skip(4 + 4) // length, protocol version
	zxid = f.long()
	f.skip(4) // timeout
	session = f.long()
	return session, zxid, !f.short
}

// receiveHandshake reads a connect response. It returns the packet with its length prefix, and what it says.
func receiveHandshake(r io.Reader) (packet []byte, h handshake, err error) {
	if packet, err = receivePacket(r, nil, minHandshake, maxHandshake); err != nil {
		if !errors.Is(err, errNotZooKeeper) {
			err = fmt.Errorf("no connect response: %w", err)
		}
		return nil, h, err
	}
	h, err = parseHandshake(packet[4:])
	return packet, h, err
}

// parseHandshake parses a connect response without its length prefix. A grant has a positive timeout.
func parseHandshake(body []byte) (h handshake, err error) {
	f := fields{rest: body}
	f.skip(4) // protocol version
	h.timeout = time.Duration(f.int()) * time.Millisecond
	h.session = f.long()
	h.password = bytes.Clone(f.bytes())
	switch {
	case f.short:
		return handshake{}, fmt.Errorf("%w: malformed connect response", errNotZooKeeper)
	case h.session != 0 && h.timeout <= 0:
		return handshake{}, fmt.Errorf("%w: it grants a session timeout of %s", errNotZooKeeper, h.timeout)
	}
	return h, nil
}

// wireEventDeleted is the event that ends all watches on a znode.
const wireEventDeleted = 2

// encodeUnwatch encodes an event that makes go-zookeeper forget its watches on a znode. Unlike those of a server, it
// has no state.
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

// errAnotherSession is the error for a server or a proxy that opens another session instead of attaching to the
// requested one. It says nothing about the requested one, which may live on.
var errAnotherSession = errors.New("the server, or a proxy in front of it, has opened another session")

// checkSameSession returns an error if a server has opened another session than the requested one.
func checkSameSession(requested int64, h handshake) error {
	if h.session == requested {
		return nil
	}
	return fmt.Errorf("%w 0x%x instead of 0x%x", errAnotherSession, h.session, requested)
}

// SessionHandle identifies a session to be closed from outside, and its servers.
type SessionHandle struct {
	Servers  []string
	Session  int64
	Password []byte
	Access   Access
	// Finals are the transactions to send first. CloseSession stores the outcome in each.
	Finals []*FinalTx
}

// CloseSession ends a session from outside, so that its ephemerals vanish at once. The caller must know that no work
// relies on the session any more (S1). It tries the servers in turn until ctx is done. It returns [ErrNoSuchSession] if
// a server no longer has the session.
func CloseSession(ctx context.Context, h SessionHandle) error {
	// Most servers close a session without authentication, so an unreadable file is not an error yet.
	ids, authErr := h.Access.Auth.read(authKey)
	d := h.Access.dialer()
	u := sessionCloser{dial: d.dial, sasl: h.Access.SASL, identities: ids, session: h.Session, password: h.Password,
		finals: h.Finals}
	err := u.closeAnywhere(ctx, d.visits(ctx, h.Servers))
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
	sasl       SASL
	identities identities
	session    int64
	password   []byte        // nil for a new session
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

// closeTries is how often a server that hangs up is tried. With TLS a server sometimes hangs up before it has sent its
// reply, and that must not decide whether the session is reported as closed.
const closeTries = 5

func (u sessionCloser) closeWithin(ctx context.Context, limit time.Duration, server string) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return untilNoHangUp(func() error { return u.closeAt(ctx, server) })
}

// askWithin is untilNoHangUp with a limit, for people who are told about the server.
func askWithin(ctx context.Context, limit time.Duration, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := untilNoHangUp(func() error { return request(ctx) })
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("no answer within %s", limit)
	}
	return err
}

// untilNoHangUp repeats a request to a server while the server hangs up, see closeTries.
func untilNoHangUp(request func() error) (err error) {
	for range closeTries {
		if err = request(); !errors.Is(err, io.EOF) {
			break
		}
	}
	return err
}

// connect connects to a server until hangUp is called or ctx is done.
func (u sessionCloser) connect(ctx context.Context, server string) (conn net.Conn, hangUp func(), err error) {
	if conn, err = u.dial(ctx, "tcp", server); err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	return conn, func() { stop(); conn.Close() }, nil
}

func (u sessionCloser) closeAt(ctx context.Context, server string) error {
	conn, hangUp, err := u.connect(ctx, server)
	if err != nil {
		return err
	}
	defer hangUp()
	if _, err := u.attach(conn); err != nil {
		return err
	}
	saslErr := u.authenticateSASL(ctx, conn, server)
	if saslErr != nil && !errors.Is(saslErr, errNotStarted) {
		return saslErr
	}
	if err := u.authenticate(conn); err != nil {
		return err
	}
	if err := sendFinals(conn, u.finals); err != nil {
		return errors.Join(err, saslErr)
	}
	for _, f := range u.finals {
		if f.Err != nil {
			f.Err = errors.Join(f.Err, saslErr)
		}
	}
	// The server replies when the ephemerals are gone, then hangs up.
	if err := call(conn, 2, wireOpClose, nil); err != nil {
		return fmt.Errorf("closeSession: %w", errors.Join(err, saslErr))
	}
	return nil
}

// errNotStarted is the error if there is nothing to authenticate with, such as a ticket. Most servers close a session
// all the same.
var errNotStarted = errors.New("cannot authenticate by SASL")

// authenticateSASL authenticates the connection by SASL. Half of the time is kept for what comes after it.
func (u sessionCloser) authenticateSASL(ctx context.Context, conn net.Conn, server string) error {
	start := ctx
	if limit, ok := ctx.Deadline(); ok {
		half, cancel := context.WithTimeout(ctx, time.Until(limit)/2)
		defer cancel()
		start = half
	}
	login, err := u.sasl.start(start, server)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errNotStarted, err)
	case login == nil:
		return nil
	}
	return login.authenticate(conn)
}

// attachAt attaches to the session at a server and hangs up. It returns the timeout that the server granted.
func (u sessionCloser) attachAt(ctx context.Context, server string) (Grant, error) {
	conn, hangUp, err := u.connect(ctx, server)
	if err != nil {
		return Grant{}, err
	}
	defer hangUp()
	requestedAt := boottime.Now()
	h, err := u.attach(conn)
	return Grant{Server: server, Timeout: h.timeout, RequestedAt: requestedAt}, err
}

// authenticate presents the identities.
func (u sessionCloser) authenticate(conn net.Conn) error {
	for _, i := range u.identities.all {
		if i.scheme != digestScheme {
			continue
		}
		if err := call(conn, xidAuth, wireOpAuth, encodeAuth(i)); err != nil {
			return fmt.Errorf("authentication: %w", err)
		}
	}
	return nil
}

// getData reads a znode.
func getData(conn net.Conn, path string) ([]byte, error) {
	const noWatch = 0
	if err := writeRequest(conn, 1, wireOpGetData, append(appendBuffer(nil, []byte(path)), noWatch)); err != nil {
		return nil, err
	}
	reply, err := readReply(conn)
	if err != nil {
		return nil, err
	}
	f := fields{rest: reply}
	data := f.bytes()
	if f.short {
		return nil, fmt.Errorf("%w: malformed data", errNotZooKeeper)
	}
	return bytes.Clone(data), nil
}

// call sends one request and waits for its reply.
func call(conn net.Conn, xid, op int32, body []byte) error {
	if err := writeRequest(conn, xid, op, body); err != nil {
		return err
	}
	_, err := readReply(conn)
	return err
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
	reply, err := receivePacket(conn, nil, replyHeaderLen, maxFinalReply)
	switch {
	case errors.Is(err, errNotZooKeeper):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("no answer: %w", err)
	}
	if code := int32(binary.BigEndian.Uint32(reply[16:])); code != 0 {
		return nil, refusedWith(code)
	}
	return reply[4+replyHeaderLen:], nil
}

func encodeAuth(id identity) []byte {
	b := binary.BigEndian.AppendUint32(nil, 0) // the type, which servers ignore
	return appendBuffer(appendBuffer(b, []byte(digestScheme)), id.secret())
}

// appendBuffer appends data with its length.
func appendBuffer(b, data []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(data))), data...)
}

// attach attaches to the session as a client that has seen nothing, so that a server with older data does not refuse
// it.
func (u sessionCloser) attach(conn net.Conn) (handshake, error) {
	h, err := u.shakeHands(conn)
	switch {
	case err != nil:
		return h, err
	case h.session == 0:
		return h, ErrNoSuchSession
	}
	return h, checkSameSession(u.session, h)
}

// errNoSession is the error for a server that opens no session.
var errNoSession = errors.New("the server did not open a session")

// open opens a session.
func (u sessionCloser) open(conn net.Conn) (handshake, error) {
	h, err := u.shakeHands(conn)
	if err == nil && h.session == 0 {
		err = errNoSession
	}
	return h, err
}

// present authenticates the connection by SASL, and presents the identities.
func (u sessionCloser) present(ctx context.Context, conn net.Conn, server string) error {
	if err := u.authenticateSASL(ctx, conn, server); err != nil {
		return err
	}
	return u.authenticate(conn)
}

// shakeHands sends the connect request for the session, 0 for a new one, and returns the server's answer.
func (u sessionCloser) shakeHands(conn net.Conn) (handshake, error) {
	timeout, password := cmp.Or(u.timeout, 10*time.Second), u.password
	if password == nil {
		password = make([]byte, passwordLen)
	}
	if _, err := conn.Write(encodeConnect(timeout, u.session, password)); err != nil {
		return handshake{}, err
	}
	_, h, err := receiveHandshake(conn)
	return h, err
}

// requestHead returns the xid and the operation of an encoded request.
func requestHead(packet []byte) (xid, op int32) {
	if len(packet) < 12 {
		return 0, 0
	}
	return int32(binary.BigEndian.Uint32(packet[4:])), int32(binary.BigEndian.Uint32(packet[8:]))
}
