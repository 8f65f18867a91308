package guard

import (
	"errors"
	"io"
	"syscall"
)

// outbox sends messages over a socket without waiting for the peer. What does not fit into the socket's buffer is kept,
// up to a limit, until flush is called again.
type outbox struct {
	socket io.Writer // which returns an error when it would have to wait
	limit  int
	unsent []byte
}

// Limits of an outbox. Guard and daemon answer each other at once, so a daemon that lets this much accumulate is hung.
// A start message may have to wait for a keeper that is busy.
const (
	daemonOutbox = 64 << 10
	keeperOutbox = 1 << 20
)

// newOutbox returns an outbox whose first messages need no new memory.
func newOutbox(socket io.Writer, limit int) outbox {
	return outbox{socket: socket, limit: limit, unsent: make([]byte, 0, 8<<10)}
}

// errUnread reports that the peer does not read its messages.
var errUnread = errors.New("the peer does not read its messages")

// send sends a message or keeps it. An error means that the message is lost: the peer is gone, or hung.
func (o *outbox) send(m message) (err error) {
	if len(o.unsent) > o.limit {
		return errUnread
	}
	if o.unsent, err = appendFrame(o.unsent, m); err != nil {
		return err
	}
	return o.flush()
}

// flush sends what fits into the socket's buffer.
func (o *outbox) flush() error {
	for len(o.unsent) > 0 {
		n, err := o.socket.Write(o.unsent)
		o.unsent = o.unsent[:copy(o.unsent, o.unsent[n:])]
		switch {
		case err == nil, errors.Is(err, io.ErrShortWrite):
		case errors.Is(err, syscall.EAGAIN):
			return nil
		default:
			o.unsent = o.unsent[:0]
			return err
		}
	}
	return nil
}

// pending reports whether flush has to be called again.
func (o *outbox) pending() bool { return len(o.unsent) > 0 }
