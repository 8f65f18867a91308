package zk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/cluster"
)

// CredentialChange is a change of the identities and the ACL of a session that can be applied.
type CredentialChange struct {
	s          *Session
	access     Access
	identities identities
	acl        []zk.ACL
	// Changed reports whether the identities differ from the session's current ones.
	Changed bool
}

// PresentCredentials reads the credentials of a again, presents new ones on the live connection, and returns the
// change. Until [CredentialChange.Apply] the session creates znodes as before. It rejects credentials without access to
// the group of p: this session would continue with the old ones, which cannot be withdrawn, but the next session would
// be locked out.
func (s *Session) PresentCredentials(ctx context.Context, p cluster.Paths, a Access) (*CredentialChange, error) {
	ids, err := a.identities()
	if err != nil {
		return nil, err
	}
	own := s.givenIdentities()
	used := a.used(own)
	if err := errors.Join(a.checkCertificate(own), a.checkListed(used)); err != nil {
		return nil, err
	}
	ids.all = append(ids.all, used...)
	change := &CredentialChange{s: s, access: a, identities: ids, acl: a.ACL.entries(a.named(ids)),
		Changed: !ids.equal(s.currentIdentities())}
	if !change.Changed {
		return change, nil
	}
	if err := s.present(ctx, ids); err != nil {
		return nil, err
	}
	for {
		err := s.checkAccess(ctx, p, ids)
		if err == nil {
			return change, nil
		}
		if !cluster.Retryable(err) || ctx.Err() != nil || s.Err() != nil {
			return nil, err
		}
	}
}

// Apply makes the session create znodes for the new identities from now on.
func (c *CredentialChange) Apply() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.access, c.s.identities, c.s.acl = c.access, c.identities, c.acl
}

// Tags returns the text of each identity that the session has and that counts for ACLs, with a [Tag] in place of a
// password.
func (s *Session) Tags() []string { return s.currentIdentities().tags() }

func (s *Session) currentIdentities() identities {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identities
}

// givenIdentities returns the identities that the servers have given to the session's connections.
func (s *Session) givenIdentities() []identity {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.given)
}

// NamedTags returns the texts of the identities that the session creates znodes for, like [Session.Tags].
func (s *Session) NamedTags() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return tagsOf(s.access.named(s.identities))
}

// createACL returns the ACL that the session creates the znode at path with.
func (s *Session) createACL(path string) []zk.ACL {
	s.mu.Lock()
	defer s.mu.Unlock()
	acl := s.acl
	if s.belowOpenRoot(path) {
		acl = zk.WorldACL(zk.PermAll)
	}
	if !cluster.IsSecret(path) {
		return acl
	}
	return slices.DeleteFunc(slices.Clone(acl), isPublic)
}

// checkCreate returns an error if ACLAuto does not know for whom to create a znode that is not below an open root: a
// server has accepted a principal, and cannot say which identity that is.
func (s *Session) checkCreate(path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.access.ACL == ACLAuto && s.access.SASL.Enabled() && s.cannotAsk && worldWritable(s.acl) &&
		!s.belowOpenRoot(path) {
		return fmt.Errorf("%w: anyone could change it: %w, or zookeeper.acl: open if that is wanted", cluster.ErrNoAuth,
			ErrCannotAsk)
	}
	return nil
}

// belowOpenRoot reports whether ACLAuto stands for open at path: the nearest root above it is open. The caller holds
// s.mu.
func (s *Session) belowOpenRoot(path string) bool {
	if s.access.ACL != ACLAuto {
		return false
	}
	for ; path != ""; path = path[:max(0, strings.LastIndexByte(path, '/'))] {
		if open, known := s.roots[path]; known {
			return open
		}
	}
	return false
}

// present presents those of ids to the server that it has not yet presented. They stay in effect until the session
// ends.
func (s *Session) present(ctx context.Context, ids identities) error {
	s.presenting.Lock()
	defer s.presenting.Unlock()
	for _, i := range ids.all {
		if i.scheme != digestScheme || s.presented.contains(i) {
			continue
		}
		if err := s.addAuth(ctx, i); err != nil {
			return err
		}
		s.presented.all = append(s.presented.all, i)
	}
	return nil
}

// addAuth presents one identity. The library presents confirmed identities again on every later connection. If it has
// reconnected in the meantime, it may not have done so, and addAuth presents the identity again.
func (s *Session) addAuth(ctx context.Context, i identity) error {
	for {
		before := s.Reconnects()
		_, err := await(WithPriority(ctx, PriorityUrgent), request{group: s.own}, func() (struct{}, error) {
			return struct{}{}, s.zk.AddAuth(digestScheme, i.secret())
		})
		switch {
		case errors.Is(err, cluster.ErrNoAuth):
			return errors.New("ZooKeeper refused the digest credentials: do the servers support the scheme digest?")
		case err != nil && (!cluster.Retryable(err) || ctx.Err() != nil || s.Err() != nil):
			return fmt.Errorf("cannot present the digest credentials to ZooKeeper: %w", err)
		case err == nil && s.Reconnects() == before:
			return nil
		}
	}
}

// checkAccess returns an error unless ids have all permissions on every persistent znode of the group.
func (s *Session) checkAccess(ctx context.Context, p cluster.Paths, ids identities) error {
	return s.eachPersistentACL(ctx, p, func(path string, list []zk.ACL) error {
		if grantsAll(list, ids) {
			return nil
		}
		return fmt.Errorf("no identity of this configuration (%s) has full access to znode %s, whose ACL is %s: keep "+
			"a line that has, "+
			"run 'zkelectd acl --apply', and only then remove that line", strings.Join(ids.tags(), ", "), path, formatACL(list))
	})
}

// of reports whether an entry of an ACL is about one of these identities.
func (ids identities) of(a zk.ACL) bool {
	return slices.ContainsFunc(ids.all, func(i identity) bool { return a.Scheme == i.scheme && a.ID == i.aclID() })
}

// grantsAll reports whether an ACL grants ids all permissions.
func grantsAll(list []zk.ACL, ids identities) bool {
	var perms int32
	for _, a := range list {
		if isPublic(a) || ids.of(a) {
			perms |= a.Perms
		}
	}
	return perms&zk.PermAll == zk.PermAll
}

// explainDenied adds advice to a permission error. It returns other errors unchanged.
func (s *Session) explainDenied(err error) error {
	if errors.Is(err, cluster.ErrNoAuth) {
		return fmt.Errorf("%w (%s)", err, s.currentIdentities().deniedAdvice())
	}
	return err
}
