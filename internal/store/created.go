package store

import (
	"context"
	"errors"
	"fmt"
	"path"

	"zkelectd/internal/cluster"
	"zkelectd/internal/sys/suggest"
)

// SyncReader is the part of a session with which [Created] makes sure that it misses nothing.
type SyncReader interface {
	cluster.Reader
	// Sync is [zk.Group.Sync].
	Sync(context.Context) error
}

// Created reports whether the group with that root exists: somebody has prepared it, or it was used. Absence proves nothing, so it
// is false only if a server that has caught up says so; each other failure is an error, and a znode that this user may not read
// exists. A znode without the record of a group, such as one that an administrator has created above or for it, is not a group.
func Created(ctx context.Context, conn SyncReader, root string, kind cluster.GroupKind) (bool, error) {
	created, err := readCreated(ctx, conn, root, kind)
	if created || err != nil {
		return created, err
	}
	if err := conn.Sync(ctx); err != nil {
		return false, err
	}
	return readCreated(ctx, conn, root, kind)
}

// readCreated is [Created] at a server that may lag behind.
func readCreated(ctx context.Context, conn cluster.Reader, root string, kind cluster.GroupKind) (bool, error) {
	paths := cluster.Paths{Root: root}
	inUse := paths.Leader() // written by init, and by the first election
	if kind == cluster.KindSlots {
		inUse = paths.Slots()
	}
	for _, znode := range []string{root, inUse} {
		data, _, err := conn.Get(ctx, znode, false)
		switch {
		case errors.Is(err, cluster.ErrNoAuth):
			return true, nil
		case err != nil && !errors.Is(err, cluster.ErrNoNode):
			return false, fmt.Errorf("cannot read znode %s: %w", znode, err)
		case len(data) > 0:
			return true, nil
		}
	}
	return false, nil
}

// SimilarRoot returns the root of a group beside the one at root whose name was probably meant; empty if there is none.
func SimilarRoot(ctx context.Context, conn cluster.Reader, root string) string {
	parent := path.Dir(root)
	names, _, err := conn.Children(ctx, parent, false)
	near := suggest.Nearest(path.Base(root), names)
	if err != nil || near == "" || near == path.Base(root) {
		return ""
	}
	znode := cluster.IdentityPath(parent, near)
	read, err := readIdentity(ctx, conn, znode)
	if err != nil || read.Record.Root != znode {
		return ""
	}
	return znode
}
