package zkstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/errgroup"

	"zkelectd/internal/cluster"
)

// ZnodeACL is a znode of a group with its ACL.
type ZnodeACL struct {
	Path string `json:"znode"`
	// ACL is as ZooKeeper's shell shows it, with a [Tag] in place of the hash of a password.
	ACL string `json:"acl"`
	// Configured reports that it is what the session would create the znode with.
	Configured bool `json:"configured"`

	// Error is why the ACL cannot be read.
	Error string `json:"error,omitempty"`

	version int32
	gone    bool
}

// ACLs returns every znode of the group, parents first. Those that vanish meanwhile are left out.
func (s *Session) ACLs(ctx context.Context, p cluster.Paths) ([]ZnodeACL, error) {
	paths := append(p.Lasting(), p.Current())
	for _, parent := range []string{p.Nodes(), p.Election()} {
		names, _, err := s.Children(ctx, parent, false)
		if errors.Is(err, cluster.ErrNoNode) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot list znode %s: %w", parent, err)
		}
		slices.Sort(names)
		for _, name := range names {
			paths = append(paths, parent+"/"+name)
		}
	}
	want := s.creates()
	all := make([]ZnodeACL, len(paths))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(maxReads)
	for i, path := range paths {
		g.Go(func() error {
			list, version, err := s.aclOf(gctx, path)
			all[i] = ZnodeACL{Path: path, ACL: written(list), Configured: err == nil && equal(list, want), version: version}
			switch {
			case err == nil:
				return nil
			case errors.Is(err, cluster.ErrNoNode):
				all[i].gone = true
				return nil
			case errors.Is(err, cluster.ErrNoAuth) && path != p.Root:
				all[i].Error = err.Error() // a stranger may have created it
				return nil
			}
			return fmt.Errorf("cannot read the ACL of znode %s: %w", path, err)
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(z ZnodeACL) bool { return z.gone }), nil
}

// Configured returns the ACL that the session creates znodes with, as [ZnodeACL] shows it.
func (s *Session) Configured() string { return written(s.creates()) }

// passes is how often ApplyACLs looks for znodes that were created meanwhile with another ACL.
const passes = 5

// ApplyACLs sets the ACL of every znode of the group to what the session creates znodes with, and calls done for each. A
// znode whose ACL was changed by another since it was read is read again. Run again after an error it goes on where it
// was: what is right is left alone. It returns once a pass finds nothing to change.
func (s *Session) ApplyACLs(ctx context.Context, p cluster.Paths, done func(ZnodeACL)) error {
	if err := s.tryACL(ctx, p); err != nil {
		return err
	}
	for range passes {
		all, err := s.ACLs(ctx, p)
		if err != nil {
			return err
		}
		todo := slices.DeleteFunc(slices.Clone(all), func(z ZnodeACL) bool { return z.Configured || z.Error != "" })
		if len(todo) == 0 {
			return foreign(all)
		}
		if err := s.setACLs(ctx, todo, done); err != nil {
			return err
		}
	}
	return errors.New("members go on creating znodes with another ACL: reload each with the same zookeeper.acl and zookeeper.auth.file " +
		"('zkelectd acl show' names them), and run it again")
}

// foreign returns an error that names the znodes which this session may not use.
func foreign(all []ZnodeACL) error {
	var errs []error
	for _, z := range all {
		if z.Error != "" {
			errs = append(errs, fmt.Errorf("znode %s: %s; if no member has created it, delete it", z.Path, z.Error))
		}
	}
	return errors.Join(errs...)
}

func (s *Session) setACLs(ctx context.Context, todo []ZnodeACL, done func(ZnodeACL)) error {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxReads)
	for _, z := range todo {
		g.Go(func() error {
			changed, err := s.setACL(ctx, z)
			if changed {
				mu.Lock()
				defer mu.Unlock()
				done(z)
			}
			return err
		})
	}
	return g.Wait()
}

// setACL sets one ACL, unless the znode has vanished or its ACL has changed since it was read. Setting what is set already
// does no harm, so an unknown outcome needs no special treatment.
func (s *Session) setACL(ctx context.Context, z ZnodeACL) (changed bool, err error) {
	_, err = await(ctx, s, func() (*zk.Stat, error) { return s.zk.SetACL(z.Path, s.creates(), z.version) })
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, cluster.ErrNoNode), errors.Is(err, cluster.ErrBadVersion):
		return false, nil
	}
	return false, fmt.Errorf("cannot set the ACL of znode %s: %w; run it again, it goes on from here", z.Path, s.denied(err))
}

// tryACL creates an ephemeral with the ACL, and makes sure that this session may still use it: a server that hashes
// passwords in another way than SHA-1 would take the whole group from its members.
func (s *Session) tryACL(ctx context.Context, p cluster.Paths) error {
	results, err := s.Do(ctx, cluster.Op{Kind: cluster.OpCreate, Path: p.ACLProbe(), Data: []byte{}, Ephemeral: true, Sequential: true})
	if err != nil {
		return fmt.Errorf("cannot try the ACL below %s: %w", p.Root, err)
	}
	path := results[0].Path
	list, _, err := s.aclOf(ctx, path)
	_, _, readErr := s.Get(ctx, path, false)
	_, removeErr := s.Do(ctx, cluster.Op{Kind: cluster.OpDelete, Path: path, Version: cluster.AnyVersion})
	if err = errors.Join(err, readErr); errors.Is(err, cluster.ErrNoAuth) || err == nil && !permits(list, s.identities()) {
		return errors.New("nothing was changed: the servers do not recognize this session in the ACL that it would set. They must hash digest " +
			"passwords with SHA-1, their default (zookeeper.DigestAuthenticationProvider.digestAlg)")
	}
	if err = errors.Join(err, removeErr); err != nil {
		return fmt.Errorf("cannot try the ACL by znode %s: %w", path, err)
	}
	return nil
}

// Creator is how a member says in its record that it creates znodes, and whom it presents itself as.
type Creator struct {
	Node string `json:"node"`
	// ACL is its zookeeper.acl, Identities are the [Tag] of each of its identities; empty for a version that does not say.
	ACL        string   `json:"acl"`
	Identities []string `json:"identities"`
	// Configured reports that both are those of this configuration, LockedOut that no identity is, where the ACL is closed.
	Configured bool `json:"configured"`
	LockedOut  bool `json:"locked_out,omitempty"`
}

// Creators returns what the members of a group say of themselves, compared with the session's own.
func (s *Session) Creators(snap cluster.Snapshot, own ACL) []Creator {
	tags := s.Tags()
	all := []Creator{}
	for _, m := range snap.Members {
		n := m.Node.Record
		c := Creator{Node: m.ID, ACL: n.ACL, Identities: n.Identities}
		c.Configured = n.ACL == string(own) && sameWords(tags, n.Identities)
		c.LockedOut = !own.Open() && !slices.ContainsFunc(n.Identities, func(tag string) bool { return slices.Contains(tags, tag) })
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b Creator) int { return strings.Compare(a.Node, b.Node) })
	return all
}

func sameWords(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}
