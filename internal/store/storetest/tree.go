// Package storetest provides an in-memory model of ZooKeeper, for tests and simulation, and the contract test that both
// the model and a real server must pass.
package storetest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"zkelectd/internal/cluster"
)

// Tree is the state of a ZooKeeper ensemble: znodes, sessions and watches. It is deterministic and has no clock,
// network or goroutine of its own: the caller decides when a request is applied and when a session ends. It is not safe
// for concurrent use.
type Tree struct {
	// Clock, if set, returns the servers' time, for [cluster.Stat.Time].
	Clock func() time.Time

	nodes    map[string]*znode
	sessions map[int64]map[string]struct{} // with their ephemerals
	data     map[string]map[int64]struct{} // one-shot watches of data and existence
	children map[string]map[int64]struct{} // one-shot watches of the list of children
	zxid     int64
	last     int64 // the last session id
}

type znode struct {
	data     []byte
	stat     cluster.Stat
	children map[string]struct{}
	creates  int32 // the next sequence number, which stops at its end
}

// Fired is a watch that has fired.
type Fired struct {
	Session int64
	Path    string
}

// NewTree returns a tree that has only the root.
func NewTree() *Tree {
	return &Tree{
		nodes:    map[string]*znode{"/": {children: make(map[string]struct{})}},
		sessions: make(map[int64]map[string]struct{}),
		data:     make(map[string]map[int64]struct{}),
		children: make(map[string]map[int64]struct{}),
	}
}

// Open opens a session.
func (t *Tree) Open() int64 {
	t.last++
	t.sessions[t.last] = make(map[string]struct{})
	return t.last
}

// Alive reports whether a session has not ended.
func (t *Tree) Alive(session int64) bool { return t.sessions[session] != nil }

// End ends a session, as expiry and closeSession do: all its ephemerals vanish in one transaction.
func (t *Tree) End(session int64) []Fired {
	owned := t.sessions[session]
	if owned == nil {
		return nil
	}
	delete(t.sessions, session)
	for _, watches := range []map[string]map[int64]struct{}{t.data, t.children} {
		for path, who := range watches {
			delete(who, session)
			if len(who) == 0 {
				delete(watches, path)
			}
		}
	}
	t.zxid++
	var fired []Fired
	for _, path := range slices.Sorted(maps.Keys(owned)) {
		t.remove(path)
		fired = t.fire(fired, path, true, true)
	}
	return fired
}

// Lose empties the tree, like servers that restart without their data: all znodes, sessions and watches are gone, and
// transaction ids start again. Session ids are not reused.
func (t *Tree) Lose() {
	last, clock := t.last, t.Clock
	*t = *NewTree()
	t.last, t.Clock = last, clock
}

// Copy empties the tree like Lose, and creates its persistent znodes again, as tools that copy data do: versions and
// sequence numbers start again as well.
func (t *Tree) Copy() {
	old := t.nodes
	t.Lose()
	for _, path := range slices.Sorted(maps.Keys(old)) {
		if n := old[path]; path != "/" && n.stat.Owner == 0 {
			_, _, _ = t.create(0, cluster.Op{Kind: cluster.OpCreate, Path: path, Data: n.data})
			t.zxid++
		}
	}
}

// EndSequence makes every later sequential child of a znode get the last number.
func (t *Tree) EndSequence(path string) {
	if n := t.nodes[path]; n != nil {
		n.creates = math.MaxInt32
	}
}

// Get returns a znode's data; it sets a watch even if the znode does not exist.
func (t *Tree) Get(session int64, path string, watch bool) ([]byte, cluster.Stat, error) {
	if !valid(path) {
		return nil, cluster.Stat{}, cluster.ErrInvalid
	}
	if watch {
		arm(t.data, path, session)
	}
	n := t.nodes[path]
	if n == nil {
		return nil, cluster.Stat{}, cluster.ErrNoNode
	}
	return slices.Clone(n.data), n.read(), nil
}

// Children returns the names of a znode's children, sorted.
func (t *Tree) Children(session int64, path string, watch bool) ([]string, cluster.Stat, error) {
	if !valid(path) {
		return nil, cluster.Stat{}, cluster.ErrInvalid
	}
	n := t.nodes[path]
	if n == nil {
		return nil, cluster.Stat{}, cluster.ErrNoNode
	}
	if watch {
		arm(t.children, path, session)
	}
	return slices.Sorted(maps.Keys(n.children)), n.read(), nil
}

func (n *znode) read() cluster.Stat {
	s := n.stat
	// The server counts creates, but reports creates and deletes.
	s.ChildVersion = 2*n.creates - int32(len(n.children))
	return s
}

func arm(watches map[string]map[int64]struct{}, path string, session int64) {
	if watches[path] == nil {
		watches[path] = make(map[int64]struct{})
	}
	watches[path][session] = struct{}{}
}

// Apply applies a whole transaction, or nothing of it and returns a *[cluster.TxError].
func (t *Tree) Apply(session int64, ops []cluster.Op) ([]cluster.Result, []Fired, error) {
	if !t.Alive(session) {
		return nil, nil, cluster.ErrSessionEnded
	}
	t.zxid++
	results := make([]cluster.Result, len(ops))
	var undo []func()
	var fired []Fired
	for i, op := range ops {
		result, back, err := t.apply(session, op)
		if err != nil {
			for _, back := range slices.Backward(undo) {
				back()
			}
			t.zxid--
			return nil, nil, &cluster.TxError{Index: i, Op: op, Err: err}
		}
		results[i] = result
		undo = append(undo, back)
	}
	for i, op := range ops {
		switch op.Kind {
		case cluster.OpCreate:
			fired = t.fire(fired, results[i].Path, true, false)
		case cluster.OpSet:
			fired = t.fire(fired, op.Path, false, false)
		case cluster.OpDelete:
			fired = t.fire(fired, op.Path, true, true)
		}
	}
	return results, fired, nil
}

// apply applies one operation and returns a function that undoes it.
func (t *Tree) apply(session int64, op cluster.Op) (cluster.Result, func(), error) {
	if !valid(op.Path) && !(op.Kind == cluster.OpCreate && op.Sequential && valid(op.Path+"0")) {
		return cluster.Result{}, nil, cluster.ErrInvalid
	}
	if op.Kind == cluster.OpCreate {
		return t.create(session, op)
	}
	n := t.nodes[op.Path]
	switch {
	case n == nil:
		return cluster.Result{}, nil, cluster.ErrNoNode
	case op.Version != cluster.AnyVersion && op.Version != n.stat.Version:
		return cluster.Result{}, nil, cluster.ErrBadVersion
	case op.Kind == cluster.OpSet:
		data, stat := n.data, n.stat
		n.data = slices.Clone(op.Data)
		n.stat.Version++
		n.stat.Modified, n.stat.Time = t.zxid, t.time()
		return cluster.Result{Version: n.stat.Version}, func() { n.data, n.stat = data, stat }, nil
	case op.Kind == cluster.OpDelete && len(n.children) > 0:
		return cluster.Result{}, nil, cluster.ErrNotEmpty
	case op.Kind == cluster.OpDelete && op.Path == "/":
		return cluster.Result{}, nil, cluster.ErrInvalid
	case op.Kind == cluster.OpDelete:
		t.remove(op.Path)
		return cluster.Result{}, func() { t.put(op.Path, n) }, nil
	}
	return cluster.Result{}, func() {}, nil
}

func (t *Tree) create(session int64, op cluster.Op) (cluster.Result, func(), error) {
	parent := t.nodes[above(op.Path)]
	if parent == nil {
		return cluster.Result{}, nil, cluster.ErrNoNode
	}
	path := op.Path
	if op.Sequential {
		path += fmt.Sprintf("%010d", parent.creates)
	}
	switch {
	case t.nodes[path] != nil:
		return cluster.Result{}, nil, cluster.ErrNodeExists
	case parent.stat.Owner != 0:
		return cluster.Result{}, nil, cluster.ErrEphemeralLeaf
	}
	n := &znode{data: slices.Clone(op.Data), children: make(map[string]struct{})}
	n.stat.Created, n.stat.Modified, n.stat.Time = t.zxid, t.zxid, t.time()
	if op.Ephemeral {
		n.stat.Owner = session
	}
	t.put(path, n)
	before := parent.creates
	if before < math.MaxInt32 {
		parent.creates++
	}
	return cluster.Result{Path: path}, func() {
		t.remove(path)
		parent.creates = before
	}, nil
}

func (t *Tree) time() time.Time {
	if t.Clock == nil {
		return time.Time{}
	}
	return t.Clock()
}

func (t *Tree) put(path string, n *znode) {
	t.nodes[path] = n
	t.nodes[above(path)].children[base(path)] = struct{}{}
	if n.stat.Owner != 0 {
		t.sessions[n.stat.Owner][path] = struct{}{}
	}
}

func (t *Tree) remove(path string) {
	n := t.nodes[path]
	delete(t.nodes, path)
	delete(t.nodes[above(path)].children, base(path))
	if owned := t.sessions[n.stat.Owner]; owned != nil {
		delete(owned, path)
	}
}

// fire fires the watches on a znode, in the order of sessions: on its data and existence; on its parent's list of
// children, if it was created or deleted; on its own list, if it was deleted.
func (t *Tree) fire(fired []Fired, path string, listed, gone bool) []Fired {
	fired = off(fired, t.data, path, path)
	if gone {
		fired = off(fired, t.children, path, path)
	}
	if listed {
		fired = off(fired, t.children, above(path), above(path))
	}
	return fired
}

func off(fired []Fired, watches map[string]map[int64]struct{}, watched, path string) []Fired {
	for _, session := range slices.Sorted(maps.Keys(watches[watched])) {
		fired = append(fired, Fired{Session: session, Path: path})
	}
	delete(watches, watched)
	return fired
}

func above(path string) string {
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		return path[:i]
	}
	return "/"
}

func base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// valid is ZooKeeper's PathUtils.validatePath.
func valid(path string) bool {
	if path == "/" {
		return true
	}
	if !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") || !utf8.ValidString(path) {
		return false
	}
	for part := range strings.SplitSeq(path[1:], "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return !strings.ContainsFunc(path, func(r rune) bool {
		return r <= 0x1f || (r >= 0x7f && r <= 0x9f) || (r >= 0xd800 && r <= 0xf8ff) || (r >= 0xfff0 && r <= 0xffff)
	})
}
