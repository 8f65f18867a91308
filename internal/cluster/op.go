package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// AnyVersion makes a check test only whether the znode exists. In a set or delete it would disable the version check,
// which the protocol's transactions never do.
const AnyVersion int32 = -1

// OpKind is what an [Op] does.
type OpKind int

// The kinds of [Op], as ZooKeeper's multi knows them.
const (
	OpCheck OpKind = iota
	OpCreate
	OpSet
	OpDelete
)

func (k OpKind) String() string {
	switch k {
	case OpCheck:
		return "check"
	case OpCreate:
		return "create"
	case OpSet:
		return "set"
	case OpDelete:
		return "delete"
	}
	return fmt.Sprintf("op(%d)", int(k))
}

// Op is one operation of a transaction. A transaction is a slice of operations, sent as one ZooKeeper multi: either all
// of them are applied or none is.
type Op struct {
	Kind OpKind `json:"kind"`
	// Path is absolute and includes the root.
	Path string `json:"path"`
	// Version is the version that check, set and delete require.
	Version int32 `json:"version"`
	// Data is what create and set write.
	Data []byte `json:"data,omitempty"`
	// Ephemeral and Sequential apply to create.
	Ephemeral  bool `json:"ephemeral,omitempty"`
	Sequential bool `json:"sequential,omitempty"`
}

// EncodeTx encodes a transaction for the processes that may have to send it in place of the daemon; nil if it is empty.
func EncodeTx(ops []Op) json.RawMessage {
	if len(ops) == 0 {
		return nil
	}
	data, err := json.Marshal(ops)
	if err != nil {
		panic(fmt.Sprintf("cluster: operations are plain: %v", err))
	}
	return data
}

// DecodeTx decodes what EncodeTx has returned. An empty text is an empty transaction.
func DecodeTx(text json.RawMessage) ([]Op, error) {
	if len(text) == 0 {
		return nil, nil
	}
	var ops []Op
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&ops); err != nil {
		return nil, fmt.Errorf("not a transaction: %w", err)
	}
	for _, op := range ops {
		if op.Kind < OpCheck || op.Kind > OpDelete || !strings.HasPrefix(op.Path, "/") {
			return nil, fmt.Errorf("not a transaction: %s %q", op.Kind, op.Path)
		}
	}
	return ops, nil
}

// Result is the result of one [Op] of a transaction that was applied.
type Result struct {
	// Path is the path that a create was given, with its sequence number if it is sequential.
	Path string
	// Version is the version after a set.
	Version int32
}

// Stat is ZooKeeper's metadata of a znode.
type Stat struct {
	// Version counts the changes of the data; it is 0 after each create.
	Version int32
	// ChildVersion counts the changes to the list of children.
	ChildVersion int32
	// Owner is the id of the session that owns an ephemeral, 0 for a persistent znode.
	Owner int64
	// Created and Modified are the transaction ids (czxid, mzxid).
	Created, Modified int64
	// Time is when the data was last written, by the clock of the ZooKeeper server that ordered the write. Every reader
	// of the same version gets the same time.
	Time time.Time
}

// The errors of one operation. They are definite: nothing was applied.
var (
	ErrNoNode        = errors.New("no such znode")
	ErrNodeExists    = errors.New("znode already exists")
	ErrBadVersion    = errors.New("znode has changed since it was read")
	ErrNotEmpty      = errors.New("znode has children")
	ErrEphemeralLeaf = errors.New("an ephemeral znode cannot have children")
	ErrNoAuth        = errors.New("not permitted by the znode's ACL")
	ErrInvalid       = errors.New("refused by the server as invalid")
)

// The errors of a request as a whole.
var (
	// ErrNotSent: the request was never sent; it has no effect.
	ErrNotSent = errors.New("not sent: no connection to ZooKeeper")
	// ErrUnknown: the request was sent and there was no reply. It may have been applied, may be applied later, or never.
	// Unknown is not failure: read back, and adopt or undo what was found.
	ErrUnknown = errors.New("outcome unknown: the connection was lost before the reply")
	// ErrSessionEnded: the session is over (expired, closed or stolen); it is of no further use.
	ErrSessionEnded = errors.New("the ZooKeeper session has ended")
)

// NoAnswer reports whether it is not known what has become of a request that failed with err, or it was not sent.
func NoAnswer(err error) bool { return Retryable(err) || errors.Is(err, ErrSessionEnded) }

// Retryable reports whether a request that failed with err may succeed if it is repeated.
func Retryable(err error) bool { return errors.Is(err, ErrNotSent) || errors.Is(err, ErrUnknown) }

// TxError names the operation that made a transaction fail. Nothing of the transaction was applied.
type TxError struct {
	// Index is the position of Op in the transaction.
	Index int
	Op    Op
	Err   error
}

func (e *TxError) Error() string {
	return fmt.Sprintf("%s %s: %v", e.Op.Kind, e.Op.Path, e.Err)
}

func (e *TxError) Unwrap() error { return e.Err }

// Hints name the znodes that may have changed since they were read. They carry no content: read again.
type Hints struct {
	// All is set after a reconnect, when watches may have been lost: everything must be read again.
	All bool
	// Paths are the znodes whose data, existence or list of children may have changed.
	Paths map[string]struct{}
}

// Add adds a path.
func (h *Hints) Add(path string) {
	if h.Paths == nil {
		h.Paths = make(map[string]struct{})
	}
	h.Paths[path] = struct{}{}
}

// Has reports whether path must be read again.
func (h Hints) Has(path string) bool {
	_, ok := h.Paths[path]
	return h.All || ok
}

// writeOp returns the write of data to a znode that may not exist.
func writeOp[T any](path string, read Stored[T], data []byte) Op {
	if !read.Exists {
		return Op{Kind: OpCreate, Path: path, Data: data}
	}
	return Op{Kind: OpSet, Path: path, Version: read.Stat.Version, Data: data}
}

// IsRefusal reports whether err is a refusal that a retry cannot resolve.
func IsRefusal(err error) bool {
	return errors.Is(err, ErrNoAuth) || errors.Is(err, ErrInvalid) || errors.Is(err, ErrEphemeralLeaf)
}
