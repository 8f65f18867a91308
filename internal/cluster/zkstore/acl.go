package zkstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/cluster"
)

// Adopt makes the session create znodes with the ACL of one that is there, so that a command leaves no open znode in a
// tree that is closed, whatever its own configuration says. Where there is none, the session's own stays.
func (s *Session) Adopt(ctx context.Context, path string) error {
	list, _, err := s.aclOf(ctx, path)
	if errors.Is(err, cluster.ErrNoNode) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read the ACL of znode %s: %w", path, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acl = list
	return nil
}

// aclOf returns the ACL of a znode, and that ACL's version.
func (s *Session) aclOf(ctx context.Context, path string) ([]zk.ACL, int32, error) {
	type reply struct {
		list    []zk.ACL
		version int32
	}
	r, err := await(ctx, s, func() (reply, error) {
		list, stat, err := s.zk.GetACL(path)
		if err != nil {
			return reply{}, err
		}
		return reply{list, stat.Aversion}, nil
	})
	return r.list, r.version, s.denied(err)
}

// Audited is what a daemon finds out about the ACLs of its group when it registers.
type Audited struct {
	// Open reports that everybody may change one of them: write it, or set an ACL that locks the group out.
	Open bool
	// Odd are the lasting znodes whose ACL is not what the session creates, as they were made under another setting.
	Odd []string
	// Advice is what to do about Odd, for the log.
	Advice string
}

// Audit compares the ACLs of a group's lasting znodes with the session's own. A daemon changes none: others may rely on
// them.
func (s *Session) Audit(ctx context.Context, p cluster.Paths) (Audited, error) {
	var found Audited
	err := s.lasting(ctx, p, func(path string, list []zk.ACL) error {
		found.Open = found.Open || strangersMay(list)
		if !equal(list, s.creates()) {
			found.Odd = append(found.Odd, path)
		}
		return nil
	})
	if len(found.Odd) > 0 {
		found.Advice = "if zookeeper.acl and zookeeper.auth.file are right here and on all members, run 'zkelectd acl apply'"
	}
	return found, err
}

// lasting calls see with the ACL of each lasting znode that exists, until there is an error.
func (s *Session) lasting(ctx context.Context, p cluster.Paths, see func(path string, list []zk.ACL) error) error {
	for _, path := range p.Lasting() {
		list, _, err := s.aclOf(ctx, path)
		if errors.Is(err, cluster.ErrNoNode) {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot read the ACL of znode %s: %w", path, err)
		}
		if err := see(path, list); err != nil {
			return err
		}
	}
	return nil
}

// strangersMay reports whether everybody may do more than read.
func strangersMay(list []zk.ACL) bool {
	return slices.ContainsFunc(list, func(a zk.ACL) bool { return a.Scheme == "world" && a.Perms&^zk.PermRead != 0 })
}

// equal compares ACLs without regard to order.
func equal(a, b []zk.ACL) bool {
	key := func(a zk.ACL) string { return fmt.Sprint(a.Scheme, " ", a.ID, " ", a.Perms) }
	keys := func(list []zk.ACL) []string {
		var all []string
		for _, a := range list {
			all = append(all, key(a))
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	return slices.Equal(keys(a), keys(b))
}

// permissions are those of ZooKeeper's shell, in its order.
var permissions = []struct {
	perm   int32
	letter string
}{{zk.PermCreate, "c"}, {zk.PermDelete, "d"}, {zk.PermRead, "r"}, {zk.PermWrite, "w"}, {zk.PermAdmin, "a"}}

// written returns an ACL as ZooKeeper's own shell shows it, with a [Tag] in place of the hash of a password.
func written(list []zk.ACL) string {
	var words []string
	for _, a := range list {
		letters := ""
		for _, p := range permissions {
			if a.Perms&p.perm != 0 {
				letters += p.letter
			}
		}
		id := a.ID
		if a.Scheme == "digest" {
			id = Tag(a.ID)
		}
		words = append(words, a.Scheme+":"+id+":"+letters)
	}
	slices.Sort(words)
	return strings.Join(words, ",")
}
