package store

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"zkelectd/internal/cluster"
	"zkelectd/internal/sys/suggest"
	"zkelectd/internal/zk"
)

// SyncReader is the part of a session with which [Created] makes sure that it misses nothing.
type SyncReader interface {
	cluster.Reader
	// Sync is [zk.Group.Sync].
	Sync(context.Context) error
}

// Created reports whether the group with that root exists: somebody has prepared it, or it was used. Absence proves
// nothing, so it is false only if a server that has caught up says so; each other failure is an error, and a znode that
// this user may not read exists. A znode without the record of a group, such as one that an administrator has created
// above or for it, is not a group.
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

// MissingError reports that there is no group, which nobody creates by chance: with a mistyped root or server, the work
// would run a second time.
type MissingError struct {
	// Group is its name on a host with several groups; empty on one with a single group.
	Group   string
	Root    string
	Servers []string
	// File is the configuration file; empty if there is none.
	File string
	// Another says that another group is there; empty if there is none.
	Another string
	// Max is the limit of the jobs of exec that run at once, whose group it is; 0 for other groups.
	Max int
	// Similar is the root of a group beside it that was probably meant; empty if there is none.
	Similar string
	// Reason is why this host does not create it; nil for [ErrNeverJoined].
	Reason error
}

func (e *MissingError) Error() string {
	meant := ""
	if e.Similar != "" {
		meant = " (is " + e.Similar + " meant?)"
	}
	why, advice := "this host does not create it: ", "if both are right, "+e.Advice()
	switch {
	case errors.As(e.Reason, new(*zk.EnsembleError)):
		why, advice = why+e.Reason.Error(), "start the servers that do not answer, or correct zookeeper.servers"
	case e.Reason == nil || errors.Is(e.Reason, ErrNeverJoined):
		why = "a host that has never been in it does not create it, as with a wrong root or server the work would " +
			"run a second time"
	default:
		why += e.Reason.Error()
	}
	if e.Another != "" {
		return fmt.Sprintf("%s: %v; %s", e.Another, e.Reason, advice)
	}
	return fmt.Sprintf("there is no group at %s on %s%s: %s; %s", e.Root, strings.Join(e.Servers, ", "), meant,
		why, advice)
}

// Is makes it an [ErrNoGroup].
func (e *MissingError) Is(target error) bool { return target == ErrNoGroup }

// ErrNeverJoined is why a host does not create a group in which it has never been.
var ErrNeverJoined = errors.New("this host has never been in the group")

// Advice says how to create the group.
func (e *MissingError) Advice() string {
	const same = " once, with the same connection and zookeeper.acl"
	switch {
	case e.File != "":
		return "run " + cluster.InGroup("'zkelectd init --config %s'", e.Group, e.File) + " once"
	case e.Group != "":
		return "run " + cluster.InGroup("'zkelectd init'", e.Group) + same
	}
	if e.Max > 0 {
		return "run " + cluster.InGroup("'zkelectd init --root %s --max %s'", "", e.Root, e.Max) + same
	}
	return "run " + cluster.InGroup("'zkelectd init --root %s'", "", e.Root) + same
}

// RequireCreated returns missing, completed by the similar root, if its group is not [Created].
func RequireCreated(ctx context.Context, conn SyncReader, kind cluster.GroupKind, missing MissingError) error {
	created, err := Created(ctx, conn, missing.Root, kind)
	if created || err != nil {
		return err
	}
	missing.Similar = similarRoot(ctx, conn, missing.Root)
	return &missing
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

// similarRoot returns the root of a group beside the one at root whose name was probably meant; empty if there is none.
func similarRoot(ctx context.Context, conn cluster.Reader, root string) string {
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
