package zk

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/cluster"
)

// AdoptACL makes the session create znodes with the ACL of an existing one, so that a command never creates an open
// znode in a private tree, whatever its own configuration. If the znode does not exist, the session keeps its own ACL.
func (s *Session) AdoptACL(ctx context.Context, path string) error {
	list, _, err := s.getACL(ctx, path)
	missing := errors.Is(err, cluster.ErrNoNode)
	if err != nil && !missing {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if missing { // what was adopted from another root does not count
		s.acl = s.access.ACL.entries(s.access.named(s.identities))
		return nil
	}
	s.acl, s.roots[path] = list, worldWritable(list)
	return nil
}

// FollowRoot finds out what ACLAuto stands for below a root: open if the root exists and is open, so that members
// without an identity can still use what this one creates, and else private. One that does not exist counts as open
// if it was so before the servers lost their data. Another ACL does not depend on it, but a reload may replace that
// by ACLAuto.
func (s *Session) FollowRoot(ctx context.Context, path string, wasOpen bool) error {
	open, exists, err := s.readOpen(ctx, path)
	if err == nil {
		s.setRoot(path, open || !exists && wasOpen)
	}
	return err
}

// FollowClosed makes ACLAuto stand for private below a znode that is closed, although the root above it is open.
func (s *Session) FollowClosed(ctx context.Context, path string) error {
	open, exists, err := s.readOpen(ctx, path)
	if exists && !open {
		s.setRoot(path, false)
	}
	return err
}

// readOpen reports whether a znode is open, and whether it exists. One whose ACL may not be read is closed.
func (s *Session) readOpen(ctx context.Context, path string) (open, exists bool, err error) {
	list, _, err := s.getACL(ctx, path)
	switch {
	case errors.Is(err, cluster.ErrNoNode):
		return false, false, nil
	case errors.Is(err, cluster.ErrNoAuth):
		return false, true, nil
	}
	return worldWritable(list), err == nil, err
}

func (s *Session) setRoot(path string, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.roots[path] = open
}

// RootOpen reports whether a root that the session follows is open, as last seen.
func (s *Session) RootOpen(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roots[path]
}

// getACL returns the ACL of a znode and the version of that ACL.
func (s *Session) getACL(ctx context.Context, path string) ([]zk.ACL, int32, error) {
	type reply struct {
		list    []zk.ACL
		version int32
	}
	r, err := await(ctx, request{group: s.own}, func() (reply, error) {
		list, stat, err := s.zk.GetACL(path)
		if err != nil {
			return reply{}, err
		}
		return reply{list, stat.Aversion}, nil
	})
	if err != nil {
		err = fmt.Errorf("cannot read the ACL of znode %s: %w", path, s.explainDenied(err))
	}
	return r.list, r.version, err
}

// DescribeACL returns the ACL of a znode in the format of ZooKeeper's shell, with a [Tag] in place of each password
// hash.
func (s *Session) DescribeACL(ctx context.Context, path string) (string, error) {
	list, _, err := s.getACL(ctx, path)
	return formatACL(list), err
}

// ACLAudit is the result of comparing the ACLs of a group's persistent znodes with those that a session creates.
type ACLAudit struct {
	// Open reports whether any client may change one of the znodes: write it, or set an ACL that locks the group out.
	Open bool
	// Mismatched are the persistent znodes whose ACL differs, because they were created under another setting.
	Mismatched []string
}

// AuditACLs compares the ACLs of a group's persistent znodes with the one that the session creates znodes with. It
// changes none: other members may rely on them.
func (s *Session) AuditACLs(ctx context.Context, p cluster.Paths) (ACLAudit, error) {
	var found ACLAudit
	err := s.eachPersistentACL(ctx, p, func(path string, list []zk.ACL) error {
		if path == p.Root { // it may have been closed
			s.setRoot(path, worldWritable(list))
		}
		found.Open = found.Open || worldWritable(list)
		if !sameACL(list, s.createACL(path)) {
			found.Mismatched = append(found.Mismatched, path)
		}
		return nil
	})
	return found, err
}

// eachPersistentACL calls see with the ACL of each existing persistent znode of the group until an error occurs.
func (s *Session) eachPersistentACL(ctx context.Context, p cluster.Paths,
	see func(path string, list []zk.ACL) error) error {
	for _, path := range p.Persistent() {
		list, _, err := s.getACL(ctx, path)
		if errors.Is(err, cluster.ErrNoNode) {
			continue
		}
		if err == nil {
			err = see(path, list)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// isPublic reports whether an entry is about all clients.
func isPublic(a zk.ACL) bool { return a.Scheme == "world" }

// worldWritable reports whether an ACL lets every client do more than read.
func worldWritable(list []zk.ACL) bool {
	return slices.ContainsFunc(list, func(a zk.ACL) bool { return isPublic(a) && a.Perms&^zk.PermRead != 0 })
}

// CheckOwner returns an error if the session creates znodes that others cannot change, but the znode at path, the root
// of a group, is one that any client may have created or changed: nothing below it can be trusted. A znode that does
// not exist is no error.
func (s *Session) CheckOwner(ctx context.Context, path string) error {
	if worldWritable(s.createACL(path)) {
		return nil
	}
	list, _, err := s.getACL(ctx, path)
	if errors.Is(err, cluster.ErrNoNode) {
		return nil
	} else if err != nil {
		return err
	}
	ids := s.currentIdentities()
	const advice = "if it belongs to this group, run 'zkelectd acl --apply'; if nobody uses it, delete it with " +
		"'deleteall %[1]s' in zkCli.sh; " +
		"else choose another zookeeper.root"
	ours := func(a zk.ACL) bool { return ids.of(a) && a.Perms&zk.PermCreate != 0 }
	open := func(a zk.ACL) bool { return (isPublic(a) || a.Scheme == "ip") && a.Perms&^zk.PermRead != 0 }
	switch {
	case slices.ContainsFunc(list, open):
		return fmt.Errorf("znode %[1]s was not created by this group, or not with this zookeeper.acl: its ACL is "+
			"%[2]s, so anyone can change what is below it; "+
			advice, path, formatACL(list))
	case slices.ContainsFunc(list, ours):
		return nil
	}
	return fmt.Errorf("znode %[1]s belongs to somebody else: its ACL is %[2]s, without a user of zookeeper.auth.file; "+
		advice, path, formatACL(list))
}

// Exposure reports whether clients without credentials may read the znode at path, and whether they may change it.
func (s *Session) Exposure(ctx context.Context, path string) (read, change bool, err error) {
	list, _, err := s.getACL(ctx, path)
	return slices.ContainsFunc(list, isPublic), worldWritable(list), err
}

// CreatesOpen reports whether the session creates znodes that all clients may change.
func (s *Session) CreatesOpen() bool { return worldWritable(s.createACL("")) }

// sameACL compares ACLs regardless of order.
func sameACL(a, b []zk.ACL) bool {
	set := func(list []zk.ACL) map[zk.ACL]bool {
		all := make(map[zk.ACL]bool)
		for _, a := range list {
			all[a] = true
		}
		return all
	}
	return maps.Equal(set(a), set(b))
}

// permissionLetters are the letters that ZooKeeper's shell uses, in its order.
var permissionLetters = []struct {
	perm   int32
	letter string
}{{zk.PermCreate, "c"}, {zk.PermDelete, "d"}, {zk.PermRead, "r"}, {zk.PermWrite, "w"}, {zk.PermAdmin, "a"}}

// formatACL returns an ACL in the format of ZooKeeper's shell, with a [Tag] in place of each password hash.
func formatACL(list []zk.ACL) string {
	var words []string
	for _, a := range list {
		letters := ""
		for _, p := range permissionLetters {
			if a.Perms&p.perm != 0 {
				letters += p.letter
			}
		}
		id := a.ID
		if a.Scheme == digestScheme {
			id = Tag(a.ID)
		}
		words = append(words, a.Scheme+":"+id+":"+letters)
	}
	slices.Sort(words)
	return strings.Join(words, ",")
}
