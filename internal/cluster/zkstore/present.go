package zkstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/cluster"
)

// Presented is a change of the identities and the ACL of a session, ready to be taken over.
type Presented struct {
	s   *Session
	who identities
	acl []zk.ACL
	// Changed reports that the identities differ from those that the session has now.
	Changed bool
}

// Present reads the credentials of a again, presents new ones on the live connection, and returns the change. Until
// [Presented.Take] the session creates znodes as before. Credentials that do not open the group of p are refused: this
// session would go on with the old ones, which cannot be taken back, and the next one would be locked out.
func (s *Session) Present(ctx context.Context, p cluster.Paths, a Access) (*Presented, error) {
	who, err := a.identities()
	if err != nil {
		return nil, err
	}
	change := &Presented{s: s, who: who, acl: a.ACL.list(who), Changed: !who.same(s.identities())}
	if !change.Changed {
		return change, nil
	}
	if err := s.present(ctx, who); err != nil {
		return nil, err
	}
	for {
		err := s.opens(ctx, p, who)
		if err == nil {
			return change, nil
		}
		if !transient(err) || ctx.Err() != nil || s.Err() != nil {
			return nil, err
		}
	}
}

// Take has the session create znodes for the new identities from now on.
func (c *Presented) Take() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.who, c.s.acl = c.who, c.acl
}

// Tags returns the [Tag] of each identity that the session creates znodes for.
func (s *Session) Tags() []string { return s.identities().tags() }

func (s *Session) identities() identities {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.who
}

// creates returns the ACL of the znodes that the session creates.
func (s *Session) creates() []zk.ACL {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acl
}

// present makes the server know all of who. What was presented once stays so until the session's end.
func (s *Session) present(ctx context.Context, who identities) error {
	s.presenting.Lock()
	defer s.presenting.Unlock()
	for _, i := range who.all {
		if s.presented.has(i) {
			continue
		}
		if err := s.addAuth(ctx, i); err != nil {
			return err
		}
		s.presented.all = append(s.presented.all, i)
	}
	return nil
}

// addAuth presents one identity. The library repeats what the server has confirmed on every later connection; where the
// connection was made anew meanwhile it may have missed that, so it is done again.
func (s *Session) addAuth(ctx context.Context, i identity) error {
	for {
		before := s.Reconnects()
		_, err := await(ctx, s, func() (struct{}, error) { return struct{}{}, s.zk.AddAuth(i.scheme, i.secret) })
		switch {
		case errors.Is(err, cluster.ErrNoAuth):
			return fmt.Errorf("ZooKeeper refused the %s credentials: check their scheme and secret", i.scheme)
		case err != nil && (!transient(err) || ctx.Err() != nil || s.Err() != nil):
			return fmt.Errorf("ZooKeeper did not take the %s credentials: %w", i.scheme, err)
		case err == nil && s.Reconnects() == before:
			return nil
		}
	}
}

// opens returns an error unless who alone may do everything with every lasting znode of the group.
func (s *Session) opens(ctx context.Context, p cluster.Paths, who identities) error {
	return s.lasting(ctx, p, func(path string, list []zk.ACL) error {
		if permits(list, who) {
			return nil
		}
		return fmt.Errorf("no identity of zookeeper.auth.file (%s) may use znode %s, whose ACL is %s: keep a line that may, "+
			"run 'zkelectd acl apply', and only then remove it", strings.Join(who.tags(), ", "), path, written(list))
	})
}

// permits reports whether an ACL lets who do everything.
func permits(list []zk.ACL, who identities) bool {
	var perms int32
	for _, a := range list {
		if a.Scheme == "world" {
			perms |= a.Perms
		}
		for _, i := range who.all {
			if a.Scheme == i.scheme && a.ID == i.id() {
				perms |= a.Perms
			}
		}
	}
	return perms&zk.PermAll == zk.PermAll
}

// denied completes a refusal with what to do about it.
func (s *Session) denied(err error) error {
	if errors.Is(err, cluster.ErrNoAuth) {
		return fmt.Errorf("%w (%s)", err, s.identities().advice())
	}
	return err
}
