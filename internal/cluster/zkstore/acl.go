package zkstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/cluster"
)

// Adopt makes the session create znodes with the ACL of one that is there, so that a command leaves no open znode in a
// tree that is closed, whatever its own configuration says. Where there is none, the session's own stays.
func (s *Session) Adopt(ctx context.Context, path string) error {
	list, err := s.aclOf(ctx, path)
	if errors.Is(err, cluster.ErrNoNode) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read the ACL of znode %s: %w", path, err)
	}
	s.acl = list
	return nil
}

func (s *Session) aclOf(ctx context.Context, path string) ([]zk.ACL, error) {
	list, err := await(ctx, s, func() ([]zk.ACL, error) {
		list, _, err := s.zk.GetACL(path)
		return list, err
	})
	return list, s.denied(err)
}

// Odd is a group's znodes whose ACL is not what the setting says, as they were made under another one.
type Odd struct {
	Znodes []string
	// Advice is what to do, for the log.
	Advice string
}

// Audit compares the ACLs of a group's lasting znodes with the session's own. ACLs are never changed: others may rely on
// them.
func (s *Session) Audit(ctx context.Context, p cluster.Paths) (Odd, error) {
	var odd Odd
	for _, path := range []string{p.Root, p.Nodes(), p.Election(), p.Leader(), p.Elected(), p.Policy(), p.Control(), p.History()} {
		list, err := s.aclOf(ctx, path)
		if errors.Is(err, cluster.ErrNoNode) {
			continue
		}
		if err != nil {
			return odd, fmt.Errorf("cannot read the ACL of znode %s: %w", path, err)
		}
		if world(list) != world(s.acl) {
			odd.Znodes = append(odd.Znodes, path)
		}
	}
	if len(odd.Znodes) > 0 {
		odd.Advice = fmt.Sprintf("if zookeeper.acl is right, change them with zkCli.sh: addauth digest USER:PASSWORD, then setAcl -R %s %s",
			p.Root, written(s.acl))
	}
	return odd, nil
}

// world is what an ACL lets everybody do.
func world(list []zk.ACL) (perms int32) {
	for _, a := range list {
		if a.Scheme == "world" {
			perms |= a.Perms
		}
	}
	return perms
}

// written is an ACL as ZooKeeper's own shell takes it.
func written(list []zk.ACL) string {
	var words []string
	for _, a := range list {
		perms := "cdrwa"
		if a.Perms == zk.PermRead {
			perms = "r"
		}
		words = append(words, a.Scheme+":"+a.ID+":"+perms)
	}
	return strings.Join(words, ",")
}
