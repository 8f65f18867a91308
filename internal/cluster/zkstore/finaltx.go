package zkstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"zkelectd/internal/cluster"
)

// The final transaction of a session that is closed from outside, in ZooKeeper's wire format: go-zookeeper cannot attach to
// an existing session.

const (
	wireOpMulti   = 14
	endOfMulti    = -1       // as an operation's type; as a result's type it means that the operation failed
	maxFinalReply = 64 << 10 // bytes; far more than the results of a few operations need
)

// wireOps are ZooKeeper's numbers of the operations. A final transaction creates nothing.
var wireOps = map[cluster.OpKind]int32{cluster.OpCheck: 13, cluster.OpSet: 5, cluster.OpDelete: 2}

// errUnsupportedOp is returned for an operation that a final transaction cannot contain.
var errUnsupportedOp = errors.New("not supported in a session's final transaction")

// FinalTx is the transaction that a session ends with, such as LEAVE, and its outcome.
type FinalTx struct {
	Ops []cluster.Op
	// Applied is true if the transaction took effect. Err is why it did not, or why that is unknown; nil if it was not sent.
	Applied bool
	Err     error
}

// send sends the transaction over a connection that is attached to the session. It returns an error only if the connection
// failed: if the server refuses the transaction, the session is closed without it.
func (l *FinalTx) send(conn net.Conn) error {
	if l == nil || len(l.Ops) == 0 || l.Applied {
		return nil
	}
	unknown := errors.Is(l.Err, cluster.ErrUnknown)
	body, err := encodeMulti(l.Ops)
	if err != nil {
		l.Err = err
		return nil
	}
	results, err := roundTrip(conn, 1, wireOpMulti, body)
	if err != nil {
		l.Err = fmt.Errorf("%w (%w)", cluster.ErrUnknown, err)
		return fmt.Errorf("final transaction: %w", err)
	}
	l.Err = refusalOf(l.Ops, results)
	var by *cluster.TxError
	if unknown && errors.As(l.Err, &by) && by.Index == 0 && by.Op.Kind == cluster.OpDelete && errors.Is(by.Err, cluster.ErrNoNode) {
		l.Err = nil // an earlier reply was lost: the missing znode is the session's own
	}
	l.Applied = l.Err == nil
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
		kind, ok := wireOps[op.Kind]
		if !ok {
			return nil, fmt.Errorf("%s %s: %w", op.Kind, op.Path, errUnsupportedOp)
		}
		b = data(head(b, kind, 0), []byte(op.Path))
		if op.Kind == cluster.OpSet {
			b = data(b, op.Data)
		}
		b = binary.BigEndian.AppendUint32(b, uint32(op.Version))
	}
	return head(b, endOfMulti, 1), nil
}

// refusalOf returns why the server refused a transaction, or nil if it took effect. In a refusal all results are errors, each
// a header and a code: 0 for the operations before the failed one, codeNotTried for those after it.
func refusalOf(ops []cluster.Op, results []byte) error {
	const header = 4 + 1 + 4 // type, done flag, error
	if len(results) < header {
		return fmt.Errorf("%w: the reply is too short", cluster.ErrUnknown)
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
		if code == 0 || code == codeNotTried {
			continue
		}
		err, named := wireErrors[code]
		if !named {
			err = fmt.Errorf("refused with code %d", code)
		}
		return &cluster.TxError{Index: i, Op: op, Err: err}
	}
	return errors.New("refused by the server without a reason")
}

// codeNotTried is the code of the operations after the failed one.
const codeNotTried = -2

// wireErrors are the error codes that a final transaction can get.
var wireErrors = map[int32]error{
	-101: cluster.ErrNoNode, -102: cluster.ErrNoAuth, -103: cluster.ErrBadVersion, -111: cluster.ErrNotEmpty,
}
