package zkstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"zkelectd/internal/cluster"
)

// The last transaction of a session that is closed from outside, in ZooKeeper's wire format: go-zookeeper can't take a
// session over.

const (
	opMultiOnWire = 14
	endOfMulti    = -1       // as the type of an operation; of a result it says that the operation failed
	maxLastReply  = 64 << 10 // far more than the results of a few operations need
)

// wireTypes are the operations as ZooKeeper numbers them. The last transaction creates nothing.
var wireTypes = map[cluster.OpKind]int32{cluster.OpCheck: 13, cluster.OpSet: 5, cluster.OpDelete: 2}

// errCannotSend says that a transaction has an operation that the last one of a session never has.
var errCannotSend = errors.New("cannot be sent when a session is closed")

// Last is the transaction that a session is to end with, such as LEAVE, and what has become of it.
type Last struct {
	Ops []cluster.Op
	// Applied is set if it took effect. Refused is why it did not, or what keeps that from being known; nil if it was not sent.
	Applied bool
	Refused error
}

// send sends the transaction over a connection of the session. A server that refuses it has answered: the session is closed
// without it. An error is the connection's.
func (l *Last) send(conn net.Conn) error {
	if l == nil || len(l.Ops) == 0 || l.Applied {
		return nil
	}
	unknown := errors.Is(l.Refused, cluster.ErrUnknown)
	body, err := encodeMulti(l.Ops)
	if err != nil {
		l.Refused = err
		return nil
	}
	results, err := exchange(conn, 1, opMultiOnWire, body)
	if err != nil {
		l.Refused = fmt.Errorf("%w (%w)", cluster.ErrUnknown, err)
		return fmt.Errorf("the last transaction: %w", err)
	}
	l.Refused = refusal(l.Ops, results)
	var by *cluster.TxError
	if unknown && errors.As(l.Refused, &by) && by.Index == 0 && by.Op.Kind == cluster.OpDelete && errors.Is(by.Err, cluster.ErrNoNode) {
		l.Refused = nil // the reply was lost: what it deletes is the session's own
	}
	l.Applied = l.Refused == nil
	return nil
}

func encodeMulti(ops []cluster.Op) ([]byte, error) {
	head := func(b []byte, kind int32, done byte) []byte {
		b = append(binary.BigEndian.AppendUint32(b, uint32(kind)), done)
		return binary.BigEndian.AppendUint32(b, 0xffffffff)
	}
	data := func(b, d []byte) []byte { return append(binary.BigEndian.AppendUint32(b, uint32(len(d))), d...) }
	var b []byte
	for _, op := range ops {
		kind, ok := wireTypes[op.Kind]
		if !ok {
			return nil, fmt.Errorf("%s %s: %w", op.Kind, op.Path, errCannotSend)
		}
		b = data(head(b, kind, 0), []byte(op.Path))
		if op.Kind == cluster.OpSet {
			b = data(b, op.Data)
		}
		b = binary.BigEndian.AppendUint32(b, uint32(op.Version))
	}
	return head(b, endOfMulti, 1), nil
}

// refusal returns why a transaction was refused, nil if it took effect. If it was, all results are errors, each a header and a
// code: 0 for the operations before the one at fault, notTriedOnWire for those after it.
func refusal(ops []cluster.Op, results []byte) error {
	const header = 4 + 1 + 4 // type, whether this is the end, error
	if len(results) < header {
		return fmt.Errorf("%w: the answer is too short", cluster.ErrUnknown)
	}
	if int32(binary.BigEndian.Uint32(results)) != endOfMulti {
		return nil
	}
	for i, op := range ops {
		if len(results) < header+4 {
			break
		}
		code := int32(binary.BigEndian.Uint32(results[header:]))
		results = results[header+4:]
		if code == 0 || code == notTriedOnWire {
			continue
		}
		err, named := wireErrors[code]
		if !named {
			err = fmt.Errorf("refused with code %d", code)
		}
		return &cluster.TxError{Index: i, Op: op, Err: err}
	}
	return errors.New("refused, and the server does not say why")
}

// notTriedOnWire is the code of the operations after the one at fault.
const notTriedOnWire = -2

// wireErrors are the refusals that a last transaction meets.
var wireErrors = map[int32]error{
	-101: cluster.ErrNoNode, -102: cluster.ErrNoAuth, -103: cluster.ErrBadVersion, -111: cluster.ErrNotEmpty,
}
