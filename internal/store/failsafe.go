package store

import (
	"context"
	"errors"
	"fmt"
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

// OpenTreeError is the error of failsafe mode in a group whose znodes are open: anyone could read its keys, or replace
// them.
type OpenTreeError struct{ Path string }

func (e *OpenTreeError) Error() string {
	return fmt.Sprintf("failsafe mode needs a secret that only members can read, but znode %s is open to all "+
		"clients: set zookeeper.auth.file and "+
		"zookeeper.acl: private on all hosts, and run 'zkelectd acl --apply'", e.Path)
}

// EnsureFailsafeKeys returns the keys of failsafe mode in the group, and creates the first one if there is none. by is
// the node's id.
func EnsureFailsafeKeys(ctx context.Context, conn secretSession, p cluster.Paths, by string,
) (cluster.FailsafeKeys, error) {
	path := p.FailsafeKeys()
	if err := checkClosed(ctx, conn, p); err != nil {
		return cluster.FailsafeKeys{}, err
	}
	for {
		read, err := readFailsafeKeys(ctx, conn, p)
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

// rotationPause is how long every member may need to read a new key. After a second rotation within that time, the
// members might have no key in common.
const rotationPause = time.Minute

// RotateFailsafeKeys adds a new key, and drops the oldest one. The members notice it by themselves.
func RotateFailsafeKeys(ctx context.Context, conn secretSession, p cluster.Paths, by string) error {
	path := p.FailsafeKeys()
	if err := checkClosed(ctx, conn, p); err != nil {
		return err
	}
	read, err := readFailsafeKeys(ctx, conn, p)
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
			return fmt.Errorf("the newest key is only %s old, and members may not have read it yet: wait "+
				"until it is %s old", age.Round(time.Second), rotationPause)
		}
	}
	if _, err := conn.Do(ctx, p.FailsafeKeysTx(read, read.Record.Rotated(by, time.Now()))...); err != nil {
		return fmt.Errorf("cannot write znode %s: %w; run it again", path, err)
	}
	return nil
}

func readFailsafeKeys(
	ctx context.Context, conn cluster.Reader, p cluster.Paths,
) (cluster.Stored[cluster.FailsafeKeys], error) {
	return readRecord(ctx, conn, p.FailsafeKeys(), false, cluster.ReadStored[cluster.FailsafeKeys])
}

// PromisesBind reports whether members may have promised something to the last leader of the group that still binds
// them. A fence that cannot be read proves nothing, so it counts as one that does.
func PromisesBind(ctx context.Context, conn cluster.Reader, p cluster.Paths) (bool, error) {
	fence, err := readRecord(ctx, conn, p.Leader(), false, cluster.ReadFence)
	damaged := fence.Err != nil && !errors.Is(fence.Err, cluster.ErrNeverWritten)
	return damaged || fence.Record.CheckSuccession() != nil, err
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

// FollowFailsafe calls f with what is known of a group, and again after changes and from time to time, but not more
// often than pace, until ctx is done or the session has ended. While ZooKeeper does not answer, f is not called: what
// it got last is remembered.
func FollowFailsafe(ctx context.Context, conn followSession, p cluster.Paths, pace time.Duration,
	f func(FailsafeGroup)) {
	nodes := make(map[string]cluster.Stored[cluster.Node])
	r := failsafeReader{changeReader: newChangeReader(conn), paths: p, nodes: nodes}
	r.follow(ctx, pace, func() time.Duration {
		if !r.read(ctx) {
			return zk.Jitter(retryInterval)
		}
		r.known.Members = joinMembers(r.incarnations, r.nodes)
		f(r.known)
		return followRefresh
	})
}

// failsafeReader reads what has changed.
type failsafeReader struct {
	changeReader
	paths        cluster.Paths
	known        FailsafeGroup
	incarnations []cluster.Incarnation
	nodes        map[string]cluster.Stored[cluster.Node]
}

// read reads what is not valid, and returns false if a read failed.
func (r *failsafeReader) read(ctx context.Context) bool {
	r.takeHints()
	if !r.list(ctx) {
		return false
	}
	paths := []string{r.paths.Policy(), r.paths.FailsafeKeys()}
	for _, in := range r.incarnations {
		paths = append(paths, r.paths.Node(in.ID))
	}
	return r.readChanged(ctx, paths, r.store)
}

// store stores what was read of a znode. It returns false if that read failed.
func (r *failsafeReader) store(read *Read) bool {
	exists := read.Err == nil
	if !exists && !errors.Is(read.Err, cluster.ErrNoNode) {
		return false
	}
	switch read.Path {
	case r.paths.Policy():
		r.known.Policy = cluster.ReadStored[cluster.Policy](read.Path, read.Data, read.Stat, exists)
	case r.paths.FailsafeKeys():
		r.known.Keys = cluster.ReadStored[cluster.FailsafeKeys](read.Path, read.Data, read.Stat, exists)
	default:
		r.nodes[lastPart(read.Path)] = storedNode(read.Path, read.Data, read.Stat, exists)
	}
	return true
}

// list reads the names of the incarnations. It returns false if that failed.
func (r *failsafeReader) list(ctx context.Context) bool {
	path := r.paths.Election()
	if r.valid[path] {
		return true
	}
	names, _, err := r.conn.Children(ctx, path, true)
	if err != nil {
		return false
	}
	r.incarnations, _ = cluster.ParseIncarnations(names)
	r.valid[path] = true
	for id := range r.nodes {
		if !slices.ContainsFunc(r.incarnations, func(in cluster.Incarnation) bool { return in.ID == id }) {
			delete(r.nodes, id)
			delete(r.valid, r.paths.Node(id))
		}
	}
	return true
}
