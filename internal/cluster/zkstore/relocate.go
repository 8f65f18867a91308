package zkstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
)

// MembersError is the error for a group that cannot be moved because daemons are members of it.
type MembersError struct {
	Root    string
	Members []string
}

func (e *MembersError) Error() string {
	return fmt.Sprintf("the group %s has members (%s): stop their daemons, or take the group's file out of groups_dir there and reload",
		e.Root, strings.Join(e.Members, ", "))
}

// RelocateGroup moves a group to another root: its terms, policy, roster, history and requests. In the old root no leader is elected any
// more; in the new one daemons with that root elect one. The new root must be unused, unless the group was there before. It
// returns a *[MembersError] while daemons are members. byName is the path of the record of the group's name, empty if there is
// none. The result is the fence in the new root.
func RelocateGroup(ctx context.Context, conn cluster.ReadWriter, from, to cluster.Paths, byName, by string) (cluster.Fence, error) {
	if to.Root == from.Root {
		return cluster.Fence{}, fmt.Errorf("the root of the group is %s already", from.Root)
	}
	if err := checkAncestors(ctx, conn, to.Root); err != nil {
		return cluster.Fence{}, err
	}
	for {
		r, err := readRelocation(ctx, conn, from, to, byName)
		if err == nil {
			r.By, r.Wall = by, time.Now()
			err = r.Check()
		}
		if err != nil {
			return cluster.Fence{}, err
		}
		_, err = conn.Do(ctx, r.Tx()...)
		switch {
		case err == nil:
			return r.Fence(), nil
		case errors.Is(err, cluster.ErrBadVersion), errors.Is(err, cluster.ErrNodeExists), errors.Is(err, cluster.ErrNotEmpty):
			// Something has changed, perhaps because a daemon has joined.
		case errors.Is(err, cluster.ErrUnknown):
			return cluster.Fence{}, fmt.Errorf("lost the connection while the group was moved: see 'zkelectd group list', and run the command again "+
				"if the group still has its old root: %w", err)
		default:
			return cluster.Fence{}, fmt.Errorf("cannot move the group from %s to %s: %w", from.Root, to.Root, err)
		}
	}
}

// readRelocation reads both roots. It creates the tree of the new one.
func readRelocation(ctx context.Context, conn cluster.ReadWriter, from, to cluster.Paths, byName string) (r cluster.Relocation, err error) {
	if r.From, err = readRoot(ctx, conn, from); err != nil {
		return r, err
	}
	if at := r.From.Identity.Record.Root; at != "" && at != from.Root {
		return r, fmt.Errorf("the group %s was moved to %s already", from.Root, at)
	}
	identity, err := readIdentity(ctx, conn, to.Root)
	if err == nil && identity.Record.Root == "" {
		err = checkNoGroupsBelow(ctx, conn, to.Root)
	}
	if err != nil {
		return r, err
	}
	if r.To, err = readRoot(ctx, conn, to); err != nil {
		return r, err
	}
	if r.To.Identity.Record.Root != from.Root { // it was not there before
		if err := to.InUse(cluster.UsageEvidence{Snapshot: r.To.Snapshot, History: r.To.History != nil}); err != nil {
			return r, err
		}
	}
	if byName == "" || byName == from.Root || byName == to.Root {
		return r, nil
	}
	r.NamePath = byName
	r.Name, err = readIdentity(ctx, conn, byName)
	return r, err
}

// readRoot reads what is below one root. It fails if there are members.
func readRoot(ctx context.Context, conn cluster.ReadWriter, p cluster.Paths) (s cluster.RootState, err error) {
	s.Paths = p
	if err := EnsureTree(ctx, conn, p); err != nil {
		return s, err
	}
	if s.Identity, err = readIdentity(ctx, conn, p.Root); err != nil {
		return s, err
	}
	nodes, stat, err := conn.Children(ctx, p.Nodes(), false)
	if err != nil {
		return s, fmt.Errorf("cannot list znode %s: %w", p.Nodes(), err)
	}
	s.Nodes = stat
	incarnations, stat, err := conn.Children(ctx, p.Election(), false)
	if err != nil {
		return s, fmt.Errorf("cannot list znode %s: %w", p.Election(), err)
	}
	s.Election = stat
	if members := slices.Concat(nodes, incarnations); len(members) > 0 {
		slices.SortFunc(members, cluster.CompareNodes)
		return s, &MembersError{p.Root, members}
	}
	if s.Snapshot, err = ReadAll(ctx, conn, p, false); err != nil {
		return s, err
	}
	if s.Policy, _, err = readOptional(ctx, conn, p.Policy()); err != nil {
		return s, err
	}
	if s.Roster, _, err = readOptional(ctx, conn, p.Roster()); err != nil {
		return s, err
	}
	s.History, s.HistoryStat, err = readOptional(ctx, conn, p.History())
	return s, err
}

// readOptional returns the data of a znode, nil if it does not exist.
func readOptional(ctx context.Context, conn cluster.Reader, path string) ([]byte, cluster.Stat, error) {
	data, stat, err := conn.Get(ctx, path, false)
	switch {
	case errors.Is(err, cluster.ErrNoNode):
		return nil, stat, nil
	case err != nil:
		return nil, stat, fmt.Errorf("cannot read znode %s: %w", path, err)
	case data == nil:
		data = []byte{}
	}
	return data, stat, nil
}
