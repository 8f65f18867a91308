package zk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// What a server sends reaches go-zookeeper only in whole packets that were checked: the library panics on a
// transaction's reply that is too short, and allocates as much memory as a list claims to need.

// The limits of a packet in bytes, without its length prefix. maxHandshake is what go-zookeeper can send again in a
// connect request; maxReply is far more than any reply of a ZooKeeper server, which by default accepts at most 1 MiB.
const (
	minHandshake   = 4 + 4 + 8 + 4 // protocol version, timeout, session, length of the password
	maxHandshake   = 1 << 7
	replyHeaderLen = 4 + 8 + 4 // xid, zxid, error code
	maxReply       = 16 << 20
)

// errNotZooKeeper is the error for bytes that no ZooKeeper server sends.
var errNotZooKeeper = errors.New("not a ZooKeeper server")

// receivePacket reads one packet and returns it with its length prefix. It uses buf if that is large enough.
func receivePacket(r io.Reader, buf []byte, least, most int) ([]byte, error) {
	buf = slices.Grow(buf[:0], 4)[:4]
	if _, err := io.ReadFull(r, buf); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(buf)
	if int64(n) < int64(least) || int64(n) > int64(most) {
		return nil, fmt.Errorf("%w: a packet of %d bytes", errNotZooKeeper, n)
	}
	buf = slices.Grow(buf, int(n))[:4+n]
	_, err := io.ReadFull(r, buf[4:])
	return buf, err
}

// The xid of events.
const xidEvent = -1

// The operations whose replies have content.
const (
	wireOpExists   = 3
	wireOpGetData  = 4
	wireOpGetACL   = 6
	wireOpSetACL   = 7
	wireOpSync     = 9
	wireOpChildren = 12
	wireOpMulti    = 14
)

// checkReply returns an error if a successful reply to an operation, or an event, is too short for what it should
// contain.
func checkReply(op int32, body []byte) error {
	f := fields{rest: body}
	switch op {
	case xidEvent:
		f.skip(4 + 4) // type, state
		if path := f.bytes(); len(path) > 0 && path[0] != '/' {
			f.short = true
		}
	case wireOpExists, wireOpSetACL:
		f.skip(statLen)
	case wireOpGetData:
		if n := f.int(); n > 0 { // -1 for none
			f.skip(n)
		}
		f.skip(statLen)
	case wireOpGetACL:
		f.list(func() { f.int(); f.bytes(); f.bytes() }) // permissions, scheme, id
		f.skip(statLen)
	case wireOpSync:
		f.bytes()
	case wireOpChildren:
		f.list(func() { f.bytes() })
		f.skip(statLen)
	case wireOpMulti:
		f.results()
	}
	if f.short {
		return fmt.Errorf("%w: a malformed reply", errNotZooKeeper)
	}
	return nil
}

// statLen is the length of a znode's stat.
const statLen = 68

// fields reads the fields of a reply. short is set when there are fewer bytes than a field needs.
type fields struct {
	rest  []byte
	short bool
}

func (f *fields) skip(n int) []byte {
	if n < 0 || n > len(f.rest) {
		f.rest, f.short = nil, true
		return nil
	}
	skipped := f.rest[:n]
	f.rest = f.rest[n:]
	return skipped
}

func (f *fields) int() int {
	b := f.skip(4)
	if b == nil {
		return 0
	}
	return int(int32(binary.BigEndian.Uint32(b)))
}

func (f *fields) long() int64 {
	b := f.skip(8)
	if b == nil {
		return 0
	}
	return int64(binary.BigEndian.Uint64(b))
}

func (f *fields) bytes() []byte { return f.skip(f.int()) }

func (f *fields) list(element func()) {
	n := f.int()
	f.short = f.short || n < 0
	for ; n > 0 && !f.short; n-- {
		element()
	}
}

// results reads the results of a transaction.
func (f *fields) results() {
	const create, setData = 1, 5
	for !f.short {
		kind := f.int()
		done := f.skip(1)
		f.skip(4) // an error code, which a failed operation repeats
		switch {
		case f.short || done[0] != 0:
			return
		case kind == endOfMulti:
			f.skip(4)
		case kind == create:
			f.bytes()
		case kind == setData:
			f.skip(statLen)
		}
	}
}
