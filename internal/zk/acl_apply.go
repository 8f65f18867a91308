package zk

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

// ZnodeACL describes the ACL of one znode of a group.
type ZnodeACL struct {
	Path string `json:"znode"`
	// ACL is in the format of ZooKeeper's shell, with a [Tag] in place of each password hash.
	ACL string `json:"acl"`
	// Configured reports whether the session would create the znode with this ACL.
	Configured bool `json:"configured"`

	// Error is why the ACL could not be read; empty if it was.
	Error string `json:"error,omitempty"`

	// NewKeys is set in what ApplyACLs reports if it has replaced the keys in the znode.
	NewKeys bool `json:"-"`

	version int32
	others  int32 // permissions of identities that the configured ACL does not name
	gone    bool
}

// ACLs returns the ACLs of all znodes of the group, parents first, and of the loads and leases of the hosts. It
// leaves out znodes that disappear while it reads.
func (s *Session) ACLs(ctx context.Context, p cluster.Paths) ([]ZnodeACL, error) {
	paths := append(p.Persistent(), p.Current())
	slots, _, err := s.Children(ctx, p.Slots(), false)
	switch {
	case errors.Is(err, cluster.ErrNoNode): // a group with one leader
	case err != nil:
		return nil, fmt.Errorf("cannot list znode %s: %w", p.Slots(), err)
	default:
		paths = append(paths, p.Slots())
		for _, slot := range slices.Sorted(slices.Values(slots)) {
			own := cluster.Paths{Root: p.Root, Slot: slot}
			paths = append(paths, own.Leader(), own.Elected(), own.Current(), own.Heir(), own.History())
		}
	}
	for _, parent := range []string{p.Nodes(), p.Election(), p.Loads(), cluster.LeaseZnodes(p.Root), p.LeaseZnodes()} {
		names, _, err := s.Children(ctx, parent, false)
		if errors.Is(err, cluster.ErrNoNode) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot list znode %s: %w", parent, err)
		}
		if parent != p.Nodes() && parent != p.Election() {
			paths = append(paths, parent)
		}
		slices.Sort(names)
		for _, name := range names {
			paths = append(paths, parent+"/"+name)
		}
	}
	all := make([]ZnodeACL, len(paths))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(maxACLs)
	for i, path := range paths {
		g.Go(func() error {
			list, version, err := s.getACL(gctx, path)
			own := s.createACL(path)
			all[i] = ZnodeACL{Path: path, ACL: formatACL(list), Configured: err == nil && sameACL(list, own),
				version: version, others: others(list, own)}
			switch {
			case errors.Is(err, cluster.ErrNoNode):
				all[i].gone = true
			case errors.Is(err, cluster.ErrNoAuth) && path != p.Root:
				all[i].Error = err.Error() // an unauthorized client may have created it
			default:
				return err
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(z ZnodeACL) bool { return z.gone }), nil
}

// ConfiguredACL returns the ACL that the session creates znodes with, in the format of [ZnodeACL.ACL].
func (s *Session) ConfiguredACL() string { return formatACL(s.createACL("")) }

// maxACLs is how many ACLs are read or set at once.
const maxACLs = 64

// maxPasses is how often ApplyACLs looks for znodes that were created with another ACL in the meantime.
const maxPasses = 5

// ApplyACLs sets the ACL of every znode of the group to the one that the session creates znodes with, and calls done
// for each that it has changed. If another client changes an ACL in the meantime, it reads it again. It returns nil
// once a pass finds nothing to change. After an error it can be called again: it changes only ACLs that differ. Keys of
// failsafe mode that others could read or write are replaced, by the operator by.
func (s *Session) ApplyACLs(ctx context.Context, p cluster.Paths, by string, done func(ZnodeACL)) error {
	if err := s.testACL(ctx, p); err != nil {
		return err
	}
	keys := keyReplacement{s: s, paths: p, by: by}
	for range maxPasses {
		all, err := s.ACLs(ctx, p)
		if err != nil {
			return err
		}
		replaced, err := keys.update(ctx, all)
		switch {
		case err != nil:
			return err
		case replaced:
			done(ZnodeACL{Path: p.FailsafeKeys(), NewKeys: true})
			all = slices.DeleteFunc(all, func(z ZnodeACL) bool { return z.Path == p.FailsafeKeys() })
		}
		todo := slices.DeleteFunc(slices.Clone(all), func(z ZnodeACL) bool { return z.Configured || z.Error != "" })
		if len(todo) == 0 && !replaced {
			return inaccessible(all)
		}
		// The root comes last: its ACL says that the group can trust what is below it.
		isRoot := func(z ZnodeACL) bool { return z.Path == p.Root }
		root := slices.DeleteFunc(slices.Clone(todo), func(z ZnodeACL) bool { return !isRoot(z) })
		if err := s.setACLs(ctx, slices.DeleteFunc(todo, isRoot), done); err != nil {
			return err
		}
		if err := s.setACLs(ctx, root, done); err != nil {
			return err
		}
	}
	return errors.New("members keep creating znodes with another ACL: reload each with the same zookeeper.acl and " +
		"zookeeper.auth.file " +
		"('zkelectd acl' lists them), then run the command again")
}

// inaccessible returns an error that names the znodes whose ACL the session may not read, or nil if there are none.
func inaccessible(all []ZnodeACL) error {
	var errs []error
	for _, z := range all {
		if z.Error != "" {
			errs = append(errs, fmt.Errorf("%s; if no member has created it, delete it", z.Error))
		}
	}
	return errors.Join(errs...)
}

func (s *Session) setACLs(ctx context.Context, todo []ZnodeACL, done func(ZnodeACL)) error {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxACLs)
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

// setACL sets one ACL, unless the znode is gone or its ACL has changed since it was read. Setting an ACL twice is
// harmless, so an unknown outcome needs no special treatment.
func (s *Session) setACL(ctx context.Context, z ZnodeACL) (changed bool, err error) {
	_, err = await(ctx, request{group: s.own}, func() (*zk.Stat, error) {
		return s.zk.SetACL(z.Path, s.createACL(z.Path), z.version)
	})
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, cluster.ErrNoNode), errors.Is(err, cluster.ErrBadVersion):
		return false, nil
	}
	return false, fmt.Errorf("cannot set the ACL of znode %s: %w; run the command again to continue", z.Path,
		s.explainDenied(err))
}

// testACL creates an ephemeral with the ACL and returns an error unless this session has access to it: on a server that
// does not hash passwords with SHA-1, the ACL would lock all members out of their group.
func (s *Session) testACL(ctx context.Context, p cluster.Paths) error {
	results, err := s.Do(ctx, cluster.Op{Kind: cluster.OpCreate, Path: p.ACLProbe(), Data: []byte{}, Ephemeral: true,
		Sequential: true})
	if err != nil {
		return fmt.Errorf("cannot test the ACL below %s: %w", p.Root, err)
	}
	path := results[0].Path
	list, _, err := s.getACL(ctx, path)
	_, _, readErr := s.Get(ctx, path, false)
	_, removeErr := s.Do(ctx, cluster.Op{Kind: cluster.OpDelete, Path: path, Version: cluster.AnyVersion})
	if err = errors.Join(err, readErr); errors.Is(err, cluster.ErrNoAuth) ||
		err == nil && !grantsAll(list, s.currentIdentities()) {
		return errors.New("nothing was changed: the servers do not match this session with the ACL that it would " +
			"set. They must hash digest " +
			"passwords with SHA-1, their default (zookeeper.DigestAuthenticationProvider.digestAlg)")
	}
	if err = errors.Join(err, removeErr); err != nil {
		return fmt.Errorf("cannot test the ACL on znode %s: %w", path, err)
	}
	return nil
}

// MemberACL is how a member creates znodes, according to its record.
type MemberACL struct {
	Node string `json:"node"`
	// ACL is the member's zookeeper.acl, Identities are the texts of those that it has ([Session.Tags]). Both are empty
	// if the member's version does not record them.
	ACL        string   `json:"acl"`
	Identities []string `json:"identities"`
	// Configured reports whether both match this configuration. LockedOut reports whether its ACL, which is not open,
	// names none of them.
	Configured bool `json:"configured"`
	LockedOut  bool `json:"locked_out,omitempty"`
	// CreatesOpen reports whether it creates open znodes only until it finds that the root is closed.
	CreatesOpen bool `json:"-"`
}

// MemberACLs returns how the members of a group create znodes, compared with own and the session's identities.
func (s *Session) MemberACLs(snap cluster.Snapshot, own ACL) []MemberACL {
	named := s.NamedTags()
	isNamed := func(tag string) bool { return slices.Contains(named, tag) }
	digests := func(tags []string) []string { // each member may have a certificate or a principal of its own
		return slices.DeleteFunc(slices.Sorted(slices.Values(tags)),
			func(tag string) bool { return strings.Contains(tag, ":") })
	}
	all := []MemberACL{}
	for _, m := range snap.Members {
		n := m.Node.Record
		c := MemberACL{Node: m.ID, ACL: n.ACL, Identities: n.Identities}
		unnamed := slices.ContainsFunc(n.Identities, func(tag string) bool { return !isNamed(tag) })
		c.Configured = n.ACL == string(own) && !unnamed && slices.Equal(digests(named), digests(n.Identities))
		c.LockedOut = !own.Open() && !slices.ContainsFunc(n.Identities, isNamed)
		c.CreatesOpen = n.OpenTree && n.ACL == string(ACLAuto) && !c.LockedOut
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b MemberACL) int { return cluster.CompareNodes(a.Node, b.Node) })
	return all
}
