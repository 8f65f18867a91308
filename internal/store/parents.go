package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"zkelectd/internal/cluster"
	"zkelectd/internal/zk"
)

// ParentError is the error if this user may not create a znode of a group, mostly its root, because somebody else owns
// the znode above it. Of several teams with a common parent, the first one has created that with an ACL for itself.
type ParentError struct {
	// Znode cannot be created. Parent is the nearest znode above it that exists.
	Znode, Parent string
	// ACL is that of Parent, and Groups has the roots of the groups right below it; both are empty if this user must
	// not read them.
	ACL    string
	Groups []string
	Err    error
}

func (e *ParentError) Error() string {
	owner := "its ACL, which this user must not read, does not permit it"
	if e.ACL != "" {
		owner = "its ACL is " + e.ACL
	}
	above := ""
	if len(e.Groups) > 0 {
		above = ", which is also above " + strings.Join(e.Groups, ", ") + ","
	}
	return fmt.Sprintf("cannot create znode %s: znode %s%s belongs to somebody else: %s. Whoever created %[2]s, such "+
		"as the team whose daemons "+
		"were started first, must add this user there, with the permissions cdr, by setAcl in zkCli.sh; else correct "+
		"zookeeper.auth.file or zookeeper.root here (%[5]v)",
		e.Znode, e.Parent, above, owner, e.Err)
}

// Unwrap returns the refusal.
func (e *ParentError) Unwrap() error { return e.Err }

// creationError returns the error for a znode that could not be created.
func creationError(ctx context.Context, conn cluster.Reader, znode string, err error) error {
	if !errors.Is(err, cluster.ErrNoAuth) || errors.Is(err, zk.ErrCannotAsk) {
		return fmt.Errorf("cannot create znode %s: %w", znode, err)
	}
	e := &ParentError{Znode: znode, Parent: "/", Err: err}
	for _, parent := range slices.Backward(cluster.Ancestors(znode)) {
		if _, _, err := conn.Get(ctx, parent, false); err == nil || errors.Is(err, cluster.ErrNoAuth) {
			e.Parent = parent
			break
		}
	}
	if c, ok := conn.(interface {
		DescribeACL(ctx context.Context, path string) (string, error)
	}); ok {
		e.ACL, _ = c.DescribeACL(ctx, e.Parent) // not known otherwise
	}
	below, _ := identitiesBelow(ctx, conn, e.Parent)
	for _, g := range below {
		if g.Root != "" {
			e.Groups = append(e.Groups, g.Root)
		}
	}
	return e
}

// CheckRoot returns the error of [EnsureIdentity] if this user may not create the root of a group, or the record of its
// name, or if one of them is inside another group. It changes nothing.
func CheckRoot(ctx context.Context, conn cluster.ReadWriter, base, name, root string) error {
	for _, znode := range slices.Compact([]string{root, cluster.IdentityPath(base, name)}) {
		if err := checkAncestors(ctx, conn, znode); err != nil {
			return err
		}
		if err := checkCreation(ctx, conn, znode); err != nil {
			return err
		}
	}
	return nil
}

// checkCreation returns an error if this user may not create a znode that does not exist. Only the servers know that:
// who must not read an ACL may have a permission all the same. So it asks for the first missing znode, in a transaction
// whose second operation always fails.
func checkCreation(ctx context.Context, conn cluster.ReadWriter, znode string) error {
	for _, path := range append(cluster.Ancestors(znode), znode) {
		_, _, err := conn.Get(ctx, path, false)
		switch {
		case err == nil, errors.Is(err, cluster.ErrNoAuth): // it exists
			continue
		case !errors.Is(err, cluster.ErrNoNode):
			return fmt.Errorf("cannot read znode %s: %w", path, err)
		}
		_, err = conn.Do(ctx, cluster.Op{Kind: cluster.OpCreate, Path: path, Data: []byte{}},
			cluster.Op{Kind: cluster.OpCheck, Path: path, Version: math.MaxInt32})
		if errors.Is(err, cluster.ErrBadVersion) || errors.Is(err, cluster.ErrNodeExists) {
			return nil
		}
		return creationError(ctx, conn, path, err)
	}
	return nil
}
