package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/zk"
)

// secretSession is the part of a session that [EnsureFailsafeKeys] uses.
type secretSession interface {
	cluster.ReadWriter
	// Exposure reports whether clients without credentials may read the znode at path, and whether they may change it.
	Exposure(ctx context.Context, path string) (read, change bool, err error)
	// CreatesOpen reports whether the session creates znodes that all clients may change.
	CreatesOpen() bool
}

// OpenTreeError is the error of failsafe mode in a group whose znodes are open: anyone could read its keys, or replace them.
type OpenTreeError struct{ Path string }

func (e *OpenTreeError) Error() string {
	return fmt.Sprintf("failsafe mode needs a secret that only members can read, but znode %s is open to all clients: set zookeeper.auth.file and "+
		"zookeeper.acl: private on all hosts, and run 'zkelectd acl --apply'", e.Path)
}

// EnsureFailsafeKeys returns the keys of failsafe mode in the group, and creates the first one if there is none. by is the node's id.
func EnsureFailsafeKeys(ctx context.Context, conn secretSession, p cluster.Paths, by string) (cluster.FailsafeKeys, error) {
	path := p.FailsafeKeys()
	if err := checkClosed(ctx, conn, p); err != nil {
		return cluster.FailsafeKeys{}, err
	}
	for {
		read, err := readFailsafeKeys(ctx, conn, p, false)
		if err != nil {
			return cluster.FailsafeKeys{}, err
		}
		if read.Err != nil {
			return cluster.FailsafeKeys{}, fmt.Errorf("%w; delete this znode, and a new key is created", read.Err)
		}
		if read.Exists {
			return read.Record, checkSecret(ctx, conn, path)
		}
		_, err = conn.Do(ctx, p.FailsafeKeysTx(read, cluster.FailsafeKeys{}.Rotated(by, time.Now()))...)
		if err != nil && !errors.Is(err, cluster.ErrNodeExists) {
			return cluster.FailsafeKeys{}, fmt.Errorf("cannot create znode %s: %w", path, err)
		}
	}
}

// checkClosed returns an error if clients without credentials could replace the keys.
func checkClosed(ctx context.Context, conn secretSession, p cluster.Paths) error {
	if conn.CreatesOpen() {
		return &OpenTreeError{p.FailsafeKeys()}
	}
	_, change, err := conn.Exposure(ctx, p.Root)
	if change {
		return &OpenTreeError{p.Root}
	}
	return err
}

// checkSecret returns an error if clients without credentials can read or change the keys.
func checkSecret(ctx context.Context, conn secretSession, path string) error {
	read, change, err := conn.Exposure(ctx, path)
	if read || change {
		return &OpenTreeError{path}
	}
	return err
}

// rotationPause is how long every member may need to read a new key. After a second rotation within that time, the members might have no
// key in common.
const rotationPause = time.Minute

// RotateFailsafeKeys adds a new key, and drops the oldest one. The members notice it by themselves.
func RotateFailsafeKeys(ctx context.Context, conn secretSession, p cluster.Paths, by string) error {
	path := p.FailsafeKeys()
	if err := checkClosed(ctx, conn, p); err != nil {
		return err
	}
	read, err := readFailsafeKeys(ctx, conn, p, false)
	if err != nil {
		return err
	}
	switch {
	case read.Newer() != nil:
		return read.Err
	case !read.Exists:
		return fmt.Errorf("znode %s does not exist: the first daemon in failsafe mode creates it, with a key", path)
	}
	if keys := read.Record.Keys; len(keys) > 0 {
		if age := time.Since(keys[0].Time); age >= 0 && age < rotationPause {
			return fmt.Errorf("the newest key is only %s old, and members may not have read it yet: wait until it is %s old", age.Round(time.Second), rotationPause)
		}
	}
	if _, err := conn.Do(ctx, p.FailsafeKeysTx(read, read.Record.Rotated(by, time.Now()))...); err != nil {
		return fmt.Errorf("cannot write znode %s: %w; run it again", path, err)
	}
	return nil
}

func readFailsafeKeys(ctx context.Context, conn cluster.Reader, p cluster.Paths, watch bool) (cluster.Stored[cluster.FailsafeKeys], error) {
	path := p.FailsafeKeys()
	data, stat, err := conn.Get(ctx, path, watch)
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		return cluster.Stored[cluster.FailsafeKeys]{}, fmt.Errorf("cannot read znode %s: %w", path, err)
	}
	return cluster.ReadStored[cluster.FailsafeKeys](path, data, stat, err == nil), nil
}

// PromisesBind reports whether members may have promised something to the last leader of the group that still binds them. A fence that
// cannot be read proves nothing, so it counts as one that does.
func PromisesBind(ctx context.Context, conn cluster.Reader, p cluster.Paths) (bool, error) {
	data, stat, err := conn.Get(ctx, p.Leader(), false)
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		return false, fmt.Errorf("cannot read znode %s: %w", p.Leader(), err)
	}
	fence := cluster.ReadFence(p.Leader(), data, stat, err == nil)
	damaged := fence.Err != nil && !errors.Is(fence.Err, cluster.ErrNeverWritten)
	return damaged || fence.Record.CheckSuccession() != nil, nil
}

// FailsafeGroup is what a host with failsafe mode knows of a group: enough to ask its members, and to answer them.
type FailsafeGroup struct {
	Policy cluster.Stored[cluster.Policy]
	Keys   cluster.Stored[cluster.FailsafeKeys]
	// Members are the registered ones, oldest first.
	Members []cluster.Member
}

// followRefresh is how often [FollowFailsafe] calls its function although nothing has changed.
const followRefresh = 10 * time.Second

// FollowFailsafe calls f with what is known of a group, and again after changes and from time to time, but not more often than pace,
// until ctx is done or the session has ended. While ZooKeeper does not answer, f is not called: what it got last is remembered.
func FollowFailsafe(ctx context.Context, conn followSession, p cluster.Paths, pace time.Duration, f func(FailsafeGroup)) {
	r := failsafeReader{conn: conn, paths: p, nodes: make(map[string]cluster.Stored[cluster.Node]), valid: make(map[string]bool)}
	again := time.NewTimer(pace)
	defer again.Stop()
	for {
		retry := zk.Jitter(retryInterval)
		if r.read(ctx) == nil {
			f(r.group())
			retry = followRefresh
		}
		again.Reset(pace)
		if !wait(ctx, conn, again.C, nil) {
			return
		}
		again.Reset(retry)
		if !wait(ctx, conn, again.C, conn.Wake()) {
			return
		}
	}
}

// wait waits for the first of both channels, and returns false if ctx is done or the session has ended instead.
func wait(ctx context.Context, conn followSession, timer <-chan time.Time, wake <-chan struct{}) bool {
	select {
	case <-timer:
	case <-wake:
	case <-conn.Done():
		return false
	case <-ctx.Done():
		return false
	}
	return true
}

// failsafeReader reads what has changed.
type failsafeReader struct {
	conn  followSession
	paths cluster.Paths
	valid map[string]bool // paths whose last read is still valid

	known        FailsafeGroup
	incarnations []cluster.Incarnation
	nodes        map[string]cluster.Stored[cluster.Node]
}

func (r *failsafeReader) group() FailsafeGroup {
	g := r.known
	g.Members = joinMembers(r.incarnations, r.nodes)
	return g
}

// read reads what is not valid.
func (r *failsafeReader) read(ctx context.Context) error {
	if h := r.conn.TakeHints(); h.All {
		clear(r.valid)
	} else {
		maps.DeleteFunc(r.valid, func(path string, _ bool) bool { return h.Has(path) })
	}
	p := r.paths
	err := r.get(ctx, p.Policy(), func(data []byte, stat cluster.Stat, exists bool) {
		r.known.Policy = cluster.ReadStored[cluster.Policy](p.Policy(), data, stat, exists)
	})
	err = errors.Join(err, r.get(ctx, p.FailsafeKeys(), func(data []byte, stat cluster.Stat, exists bool) {
		r.known.Keys = cluster.ReadStored[cluster.FailsafeKeys](p.FailsafeKeys(), data, stat, exists)
	}))
	if err = errors.Join(err, r.list(ctx)); err != nil {
		return err
	}
	return r.readNodes(ctx)
}

// readNodes reads the records of the members at once.
func (r *failsafeReader) readNodes(ctx context.Context) error {
	var reads []*Read
	var ids []string
	for _, in := range r.incarnations {
		if path := r.paths.Node(in.ID); !r.valid[path] {
			reads, ids = append(reads, &Read{Path: path, Watch: true}), append(ids, in.ID)
		}
	}
	readAtOnce(ctx, r.conn, reads)
	var failure error
	for i, read := range reads {
		if read.Err != nil && !errors.Is(read.Err, cluster.ErrNoNode) {
			failure = read.Err
			continue
		}
		r.nodes[ids[i]] = storedNode(read.Path, read.Data, read.Stat, read.Err == nil)
		r.valid[read.Path] = true
	}
	return failure
}

func (r *failsafeReader) get(ctx context.Context, path string, store func(data []byte, stat cluster.Stat, exists bool)) error {
	if r.valid[path] {
		return nil
	}
	data, stat, err := r.conn.Get(ctx, path, true)
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		return err
	}
	store(data, stat, err == nil)
	r.valid[path] = true
	return nil
}

// list reads the names of the incarnations.
func (r *failsafeReader) list(ctx context.Context) error {
	path := r.paths.Election()
	if r.valid[path] {
		return nil
	}
	names, _, err := r.conn.Children(ctx, path, true)
	if err != nil {
		return err
	}
	r.incarnations, _ = cluster.ParseIncarnations(names)
	r.valid[path] = true
	for id := range r.nodes {
		if !slices.ContainsFunc(r.incarnations, func(in cluster.Incarnation) bool { return in.ID == id }) {
			delete(r.nodes, id)
			delete(r.valid, r.paths.Node(id))
		}
	}
	return nil
}
