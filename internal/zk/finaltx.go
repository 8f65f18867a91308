package zk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"

	"zkelectd/internal/cluster"
)

// The final transaction of a session that is closed from outside, in ZooKeeper's wire format: go-zookeeper cannot
// attach to an existing session.

const (
	endOfMulti    = -1       // as an operation's type; as a result's type it means that the operation failed
	maxFinalReply = 64 << 10 // bytes; far more than the results of a few operations need
)

// wireOps are ZooKeeper's numbers of the operations. A final transaction creates nothing.
var wireOps = map[cluster.OpKind]int32{cluster.OpCheck: 13, cluster.OpSet: 5, cluster.OpDelete: 2}

// FinalTx is a transaction FINAL that a session ends with, and its outcome.
type FinalTx struct {
	// Root is the group's, for messages; empty if it is not known.
	Root string
	Ops  []cluster.Op
	// Applied is true if the transaction took effect. Err is why it did not, or why that is unknown; nil if it was not
	// sent.
	Applied bool
	Err     error
}

// maxFinalsInFlight is how many final transactions are sent before the first reply is read.
const maxFinalsInFlight = 64

// sendFinals sends those of the transactions that have not been applied, over a connection that is attached to the
// session. It returns an error only if the connection failed: if the server refuses a transaction, the session is
// closed without it.
func sendFinals(conn net.Conn, all []*FinalTx) error {
	for part := range slices.Chunk(all, maxFinalsInFlight) {
		var sent []*FinalTx
		for _, l := range part {
			if len(l.Ops) == 0 || l.Applied {
				continue
			}
			if err := writeRequest(conn, 1, wireOpMulti, encodeMulti(l.Ops)); err != nil {
				return lostFinals(append(sent, l), err)
			}
			sent = append(sent, l)
		}
		for i, l := range sent {
			results, err := readReply(conn)
			if err != nil {
				return lostFinals(sent[i:], err)
			}
			l.done(results)
		}
	}
	return nil
}

// lostFinals marks the transactions whose replies were lost.
func lostFinals(sent []*FinalTx, err error) error {
	for _, l := range sent {
		l.Err = fmt.Errorf("%w (%w)", cluster.ErrUnknown, err)
	}
	return fmt.Errorf("final transaction: %w", err)
}

// done stores the outcome that a reply says. If an earlier reply was lost, a refusal proves nothing.
func (l *FinalTx) done(results []byte) {
	unknown := errors.Is(l.Err, cluster.ErrUnknown)
	if l.Err = refusalOf(l.Ops, results); unknown && l.Err != nil {
		l.Err = fmt.Errorf("%w (%w)", cluster.ErrUnknown, l.Err)
	}
	l.Applied = l.Err == nil
}

func encodeMulti(ops []cluster.Op) []byte {
	head := func(b []byte, kind int32, done byte) []byte {
		b = append(binary.BigEndian.AppendUint32(b, uint32(kind)), done)
		return binary.BigEndian.AppendUint32(b, 0xffffffff)
	}
	var b []byte
	for _, op := range ops {
		b = appendBuffer(head(b, wireOps[op.Kind], 0), []byte(op.Path))
		if op.Kind == cluster.OpSet {
			b = appendBuffer(b, op.Data)
		}
		b = binary.BigEndian.AppendUint32(b, uint32(op.Version))
	}
	return head(b, endOfMulti, 1)
}

// refusalOf returns why the server refused a transaction, or nil if it took effect. In a refusal all results are
// errors, each a header and a code: 0 for the operations before the failed one, codeNotTried for those after it.
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
			err = refusedWith(code)
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
