package zk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"zkelectd/internal/cluster"
)

// others returns the permissions that an ACL grants to identities which another one does not name.
func others(list, configured []zk.ACL) (perms int32) {
	for _, a := range list {
		if !slices.ContainsFunc(configured, func(c zk.ACL) bool { return c.Scheme == a.Scheme && c.ID == a.ID }) {
			perms |= a.Perms
		}
	}
	return perms
}

// keysExposed reports whether others could read or write the keys of failsafe mode, or could have put them there:
// whoever may create znodes below the root may give them any ACL.
func keysExposed(all []ZnodeACL, p cluster.Paths) bool {
	exist := slices.ContainsFunc(all, func(z ZnodeACL) bool { return z.Path == p.FailsafeKeys() })
	return exist && slices.ContainsFunc(all, func(z ZnodeACL) bool {
		switch z.Path {
		case p.FailsafeKeys():
			return z.Error != "" || z.others&(zk.PermRead|zk.PermWrite|zk.PermAdmin) != 0
		case p.Root:
			return z.others&(zk.PermCreate|zk.PermDelete|zk.PermAdmin) != 0
		}
		return false
	})
}

// keyReplacement replaces the keys of failsafe mode that others could know.
type keyReplacement struct {
	s     *Session
	paths cluster.Paths
	by    string
	data  []byte // what replaced them; nil while nothing has
}

// update replaces the keys if they are exposed in what was read, or if somebody has put others in the place of the new
// ones before the root was closed. It reports whether it did.
func (k *keyReplacement) update(ctx context.Context, all []ZnodeACL) (bool, error) {
	if k.s.CreatesOpen() || !keysExposed(all, k.paths) && !k.changed(ctx) {
		return false, nil
	}
	path, next := k.paths.FailsafeKeys(), cluster.FailsafeKeys{}.Rotated(k.by, time.Now())
	k.data = cluster.Encode(&next)
	_, err := k.s.Do(ctx,
		cluster.Op{Kind: cluster.OpDelete, Path: path, Version: cluster.AnyVersion}, // whatever is there
		cluster.Op{Kind: cluster.OpCreate, Path: path, Data: k.data},
	)
	if errors.Is(err, cluster.ErrNoNode) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("cannot replace the keys in znode %s, which others could read or write: %w; run "+
			"the command again", path, err)
	}
	return true, nil
}

// changed reports whether the new keys are no longer there.
func (k *keyReplacement) changed(ctx context.Context) bool {
	if k.data == nil {
		return false
	}
	data, _, err := k.s.Get(ctx, k.paths.FailsafeKeys(), false)
	return errors.Is(err, cluster.ErrNoAuth) || err == nil && !bytes.Equal(data, k.data)
}
