package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"zkelectd/internal/cluster"
)

// EnsureIdentity records that the group name, below base (the zookeeper.root of the host), has the root and the kind of
// own, or checks what other hosts have recorded. It is called before the tree of the group is created and before each
// REGISTER; after an error this host must take no part in the group. It writes to no record that exists, except that a
// root without an id gets that of own.
//
// There are two records, one at the root and one at the name; they are one znode unless the group's zookeeper.root is
// configured. The one at the root also refuses a group whose root was moved, or whose root lies inside another group.
func EnsureIdentity(ctx context.Context, conn cluster.ReadWriter, base, name string, own cluster.Identity) error {
	return agree(ctx, conn, base, name, own, true)
}

// VerifyIdentity is [EnsureIdentity] without writing.
func VerifyIdentity(ctx context.Context, conn cluster.ReadWriter, base, name string, own cluster.Identity) error {
	return agree(ctx, conn, base, name, own, false)
}

// NewGroupID returns a new id of a group.
func NewGroupID() string { return rand.Text() }

// records returns the znodes with the records of a group, and the record of each.
func records(base, name string, own cluster.Identity) (znodes []string, recordAt func(znode string) cluster.Identity) {
	return slices.Compact([]string{own.Root, cluster.IdentityPath(base, name)}), func(znode string) cluster.Identity {
		rec := own
		if znode != own.Root {
			rec.ID = ""
		}
		return rec
	}
}

func agree(ctx context.Context, conn cluster.ReadWriter, base, name string, own cluster.Identity, write bool) error {
	znodes, recordAt := records(base, name, own)
	for _, znode := range znodes {
		if err := checkAncestors(ctx, conn, znode); err != nil {
			return fmt.Errorf("group %s: %w", name, err)
		}
		if err := ensureRecord(ctx, conn, znode, recordAt(znode), write); err != nil {
			return fmt.Errorf("group %s: %w", name, err)
		}
	}
	return nil
}

// checkAncestors returns an error if the znode is inside a group: it could be one of that group's znodes.
func checkAncestors(ctx context.Context, conn cluster.Reader, znode string) error {
	for _, parent := range cluster.Ancestors(znode) {
		read, err := readIdentity(ctx, conn, parent)
		if errors.Is(err, cluster.ErrNoAuth) {
			continue // above the tree: an administrator has created it
		}
		if err != nil {
			return err
		}
		if read.Newer() != nil || read.Record.Root != "" {
			return fmt.Errorf("znode %s belongs to a group, so no other group may be below it: choose another "+
				"zookeeper.root than %s", parent, znode)
		}
	}
	return nil
}

// ensureRecord checks the record that a znode has. If it has none, or a root lacks its id, and write is set, it writes
// own.
func ensureRecord(ctx context.Context, conn cluster.ReadWriter, znode string, own cluster.Identity, write bool) error {
	root := own.Root
	for {
		read, err := readIdentity(ctx, conn, znode)
		if err != nil {
			return err
		}
		if read.Err != nil && read.Newer() == nil {
			if _, _, err := conn.Get(ctx, root+"/"+electionName, false); errors.Is(err, cluster.ErrNoNode) {
				return fmt.Errorf("%w; it is not the record of a group: choose another zookeeper.root or "+
					"name for this one", read.Err)
			}
			if znode != root {
				return fmt.Errorf("%w; members that run restore it; if none runs, and zookeeper.root of the group is "+
					"%s on all hosts, delete it with "+
					"'delete %s' in zkCli.sh", read.Err, root, znode)
			}
			return fmt.Errorf("%w; members that run restore it; if none runs, run %s", read.Err,
				cluster.InGroup("'zkelectd repair root --root %s'", "", root))
		}
		if err := cluster.CheckIdentity(znode, root, own.Kind, read); err != nil {
			return err
		}
		rec := own
		if read.Record.Root != "" {
			if !write || own.ID == "" || !cluster.LacksID(znode, read) {
				return nil
			}
			rec = read.Record
			rec.ID = own.ID
		} else if err := checkNoGroupsBelow(ctx, conn, znode); err != nil || !write {
			return err
		}
		err = writeIdentity(ctx, conn, znode, rec, read)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, cluster.ErrNodeExists), errors.Is(err, cluster.ErrBadVersion), errors.Is(err, cluster.ErrNoNode):
			// Another host was faster, or deleted it: what is there now counts.
		case errors.Is(err, cluster.ErrNoAuth) && read.Exists && znode == root:
			return nil // only an administrator may write it: no host has another root for it
		case errors.As(err, new(*ParentError)):
			return err
		case !read.Exists:
			return creationError(ctx, conn, znode, err)
		default:
			return fmt.Errorf("cannot write znode %s: %w", znode, err)
		}
	}
}

// checkNoGroupsBelow returns an error if there are groups below a znode that is to become the root of a group: a daemon
// of one group must not take the zookeeper.root of many for its own.
func checkNoGroupsBelow(ctx context.Context, conn cluster.Reader, root string) error {
	below, err := identitiesBelow(ctx, conn, root)
	if err != nil {
		return err
	}
	for _, g := range below {
		if g.Root != "" {
			return fmt.Errorf("%s is a group, so no other group may be above it: choose another zookeeper.root than "+
				"%s, or set groups_dir",
				cluster.IdentityPath(root, g.Name), root)
		}
	}
	return nil
}

func writeIdentity(ctx context.Context, conn cluster.ReadWriter, znode string, rec cluster.Identity,
	read cluster.Stored[cluster.Identity]) error {
	op := cluster.Op{Kind: cluster.OpSet, Path: znode, Version: read.Stat.Version}
	if !read.Exists {
		for _, parent := range cluster.Ancestors(znode) {
			if err := ensureZnode(ctx, conn, parent); err != nil {
				return err
			}
		}
		op.Kind = cluster.OpCreate
	}
	op.Data = cluster.Encode(&rec)
	_, err := conn.Do(ctx, op)
	return err
}

// RestoreIdentity writes the records of [EnsureIdentity] again that are damaged, or have lost their id, and returns
// their znodes. Only a registered member may call it: it has agreed with these records before.
func RestoreIdentity(ctx context.Context, conn cluster.ReadWriter, base, name string,
	own cluster.Identity) (restored []string, err error) {
	znodes, recordAt := records(base, name, own)
	for _, znode := range znodes {
		read, err := readIdentity(ctx, conn, znode)
		if err == nil && read.Newer() == nil && (read.Err != nil || own.ID != "" && cluster.LacksID(znode, read)) {
			if err = writeIdentity(ctx, conn, znode, recordAt(znode), read); err == nil {
				restored = append(restored, znode)
			}
		}
		if err != nil && !errors.Is(err, cluster.ErrBadVersion) { // another member was faster
			return restored, err
		}
	}
	return restored, nil
}

// ReadIdentity returns what the root of a group records.
func ReadIdentity(ctx context.Context, conn cluster.Reader, p cluster.Paths) (cluster.Stored[cluster.Identity], error) {
	return readIdentity(ctx, conn, p.Root)
}

func readIdentity(ctx context.Context, conn cluster.Reader, znode string) (cluster.Stored[cluster.Identity], error) {
	return readRecord(ctx, conn, znode, false, cluster.ReadIdentity)
}

// NamedGroup is a group by its name.
type NamedGroup struct {
	Name string
	// Root is its root; empty if it can't be read. Err is why the group can't be used, nil if it can.
	Root string
	Kind cluster.GroupKind
	Err  error
}

// ErrNoGroup is matched by the error for a name that no group has.
var ErrNoGroup = errors.New("there is no group")

// Groups returns the groups of the zookeeper.root base, in the order of their names; none if there are none yet. If
// base is itself the root of a group, single is set, and that is the only one.
func Groups(ctx context.Context, conn cluster.Reader, base string) (groups []NamedGroup, single bool, err error) {
	self := NamedGroup{Name: cluster.NameOf(base), Root: base, Kind: cluster.KindSingle}
	read, err := readIdentity(ctx, conn, base)
	if err != nil {
		return nil, false, err
	}
	if g := named(self.Name, base, read); g.Root != "" || g.Err != nil {
		return []NamedGroup{g}, true, nil
	}
	below, err := identitiesBelow(ctx, conn, base)
	if err != nil {
		return nil, false, err
	}
	own := slices.ContainsFunc(below, func(g NamedGroup) bool { return g.Name == electionName && g.Root == "" })
	groups = slices.DeleteFunc(below, func(g NamedGroup) bool { return g.Root == "" && g.Err == nil })
	if own {
		return []NamedGroup{self}, true, nil
	}
	return groups, false, nil
}

// FindGroup returns the group with that name of the zookeeper.root base. The error matches [ErrNoGroup] if there is
// none.
func FindGroup(ctx context.Context, conn cluster.Reader, base, name string) (NamedGroup, error) {
	znode := cluster.IdentityPath(base, name)
	read, err := readIdentity(ctx, conn, znode)
	if err != nil {
		return NamedGroup{}, err
	}
	if g := named(name, znode, read); g.Root != "" || g.Err != nil {
		return g, g.Err
	}
	groups, single, err := Groups(ctx, conn, base)
	if err != nil {
		return NamedGroup{}, err
	}
	var names []string
	for _, g := range groups {
		if g.Name == name {
			return g, g.Err
		}
		names = append(names, g.Name)
	}
	if len(names) == 0 {
		return NamedGroup{}, fmt.Errorf("%w %q: there are no groups below %s yet", ErrNoGroup, name, base)
	}
	if single {
		return NamedGroup{}, fmt.Errorf("%w %q: zookeeper.root is %s, the root of one group", ErrNoGroup, name, base)
	}
	return NamedGroup{}, fmt.Errorf("%w %q below %s; there are %s", ErrNoGroup, name, base, strings.Join(names, ", "))
}

// electionName is the child that every group's root has.
const electionName = "election"

// identitiesBelow returns what the children of a znode say, in the order of their names. A znode that belongs to no
// group has neither a root nor an error.
func identitiesBelow(ctx context.Context, conn cluster.Reader, base string) ([]NamedGroup, error) {
	names, _, err := conn.Children(ctx, base, false)
	if errors.Is(err, cluster.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list znode %s: %w", base, err)
	}
	slices.Sort(names)
	all := make([]NamedGroup, len(names))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxReads)
	for i, name := range names {
		g.Go(func() error {
			znode := cluster.IdentityPath(base, name)
			slot, err := readIdentity(ctx, conn, znode)
			switch {
			case errors.Is(err, cluster.ErrNoAuth):
				all[i] = NamedGroup{Name: name, Err: err}
				return nil
			case err != nil:
				return err
			}
			all[i] = named(name, znode, slot)
			return nil
		})
	}
	return all, g.Wait()
}

// named returns what the znode at znode says about the group name.
func named(name, znode string, slot cluster.Stored[cluster.Identity]) NamedGroup {
	rec := slot.Record
	switch {
	case rec.Root != "":
		return NamedGroup{Name: name, Root: rec.Root, Kind: rec.Kind, Err: cluster.CheckIdentity(znode, rec.Root,
			rec.Kind, slot)}
	case slot.Newer() != nil:
		return NamedGroup{Name: name, Err: slot.Err}
	}
	return NamedGroup{Name: name} // another znode: its data is not ours
}
