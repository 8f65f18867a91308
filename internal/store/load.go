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

// WriteLoad writes the load of a node below base. The record disappears with the session. It returns an error while
// another session, such as that of an earlier run, owns the record.
func WriteLoad(ctx context.Context, conn registrar, base, id string, rec cluster.Load) error {
	path := cluster.Loads(base) + "/" + id
	_, stat, err := conn.Get(ctx, path, false)
	set := cluster.Op{Kind: cluster.OpSet, Path: path, Version: stat.Version, Data: cluster.Encode(&rec)}
	create := cluster.Op{Kind: cluster.OpCreate, Path: path, Data: set.Data, Ephemeral: true}
	ops := []cluster.Op{set}
	switch {
	case errors.Is(err, cluster.ErrNoNode):
		if err := ensureZnode(ctx, conn, cluster.Loads(base)); err != nil {
			return err
		}
		ops = []cluster.Op{create}
	case err != nil:
		return fmt.Errorf("cannot read znode %s: %w", path, err)
	case stat.Owner == 0: // of a copy of the data: nobody else would delete it
		ops = []cluster.Op{{Kind: cluster.OpDelete, Path: path, Version: stat.Version}, create}
	case stat.Owner != conn.SessionID():
		return fmt.Errorf("znode %s belongs to session 0x%x", path, stat.Owner)
	}
	if _, err := conn.Do(ctx, ops...); err != nil {
		return fmt.Errorf("cannot write znode %s: %w", path, err)
	}
	return nil
}

// FollowLoads calls f with the loads of all nodes below base, by their ids, and again after changes, but not more often
// than pace, until ctx is done or the session has ended. Loads that cannot be read are missing. f must not change the
// map.
func FollowLoads(ctx context.Context, conn followSession, base string, pace time.Duration,
	f func(map[string]cluster.Load)) {
	r := loadReader{changeReader: newChangeReader(conn), root: cluster.Loads(base), nodes: make(map[string]cluster.Load)}
	r.follow(ctx, pace, func() time.Duration {
		complete := r.read(ctx)
		f(maps.Clone(r.nodes))
		if complete {
			return 0
		}
		return zk.Jitter(retryInterval)
	})
}

// loadReader reads the loads that have changed.
type loadReader struct {
	changeReader
	root  string
	names []string
	nodes map[string]cluster.Load
}

// read reads what is not valid, and returns false if a read failed.
func (r *loadReader) read(ctx context.Context) bool {
	r.takeHints()
	if !r.list(ctx) {
		return false
	}
	paths := make([]string, len(r.names))
	for i, id := range r.names {
		paths[i] = r.root + "/" + id
	}
	return r.readChanged(ctx, paths, r.store)
}

// list reads the names of the nodes.
func (r *loadReader) list(ctx context.Context) bool {
	if r.valid[r.root] {
		return true
	}
	names, _, err := r.conn.Children(ctx, r.root, true)
	if errors.Is(err, cluster.ErrNoNode) {
		_, _, err = r.conn.Get(ctx, r.root, true) // for a watch on its creation
		if err == nil {
			return false
		}
	}
	if err != nil && !errors.Is(err, cluster.ErrNoNode) {
		return false
	}
	r.names, r.valid[r.root] = names, true
	maps.DeleteFunc(r.nodes, func(id string, _ cluster.Load) bool { return !slices.Contains(names, id) })
	return true
}

// store stores what was read of a node. It returns false if that read failed.
func (r *loadReader) store(read *Read) bool {
	if !read.answered() {
		return false
	}
	id := lastPart(read.Path)
	delete(r.nodes, id)
	// A record that no session owns is not that of a running host.
	if s := cluster.ReadStored[cluster.Load](read.Path, read.Data, read.Stat, read.Err == nil); s.Readable() &&
		read.Stat.Owner != 0 {
		r.nodes[id] = s.Record
	}
	return true
}
