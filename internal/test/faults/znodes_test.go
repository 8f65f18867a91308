package faults

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/test/zkserver"
	"zkelectd/internal/zk"
)

// znodeFaults delete znodes in one transaction, as an operator with too many permissions can.
var znodeFaults = []fault{
	{"a node's registration deleted", removeZnodes(func(g *group, _ []string) []string { return []string{g.paths.Node(g.victim().id)} })},
	{"an incarnation deleted", removeZnodes(victimIncarnation)},
	{"elected deleted", removeZnodes(func(g *group, _ []string) []string { return []string{g.paths.Elected()} })},
	{"current deleted", removeZnodes(func(g *group, _ []string) []string { return []string{g.paths.Current()} })},
	{"the leader's session closed by another client", closeLeaderSession},
	{"leader deleted with its children", removeZnodes(func(g *group, all []string) []string { return subtree(all, g.paths.Leader()) })},
	{"policy deleted", removeZnodes(func(g *group, _ []string) []string { return []string{g.paths.Policy()} })},
	{"control deleted", removeZnodes(func(g *group, _ []string) []string { return []string{g.paths.Control()} })},
	{"roster deleted", removeZnodes(func(g *group, _ []string) []string { return []string{g.paths.Roster()} })},
	{"history deleted", removeZnodes(func(g *group, _ []string) []string { return []string{g.paths.History()} })},
	{"the lease znode of the leader deleted", attackLease(func(znode string, stat cluster.Stat) []cluster.Op {
		return []cluster.Op{{Kind: cluster.OpDelete, Path: znode, Version: stat.Version}}
	})},
	{"the lease znode of the leader replaced", attackLease(func(znode string, stat cluster.Stat) []cluster.Op {
		return append([]cluster.Op{{Kind: cluster.OpDelete, Path: znode, Version: stat.Version}}, cluster.LeaseZnodeTx(znode)...)
	})},
	{"the lease znode of the leader written by somebody else", attackLease(func(znode string, stat cluster.Stat) []cluster.Op {
		return []cluster.Op{{Kind: cluster.OpSet, Path: znode, Version: stat.Version}}
	})},
	{"everything deleted below the root", removeZnodes(func(g *group, all []string) []string { return subtree(all, g.paths.Root)[1:] })},
}

// closeLeaderSession closes the leader's session, as every client of a server can, see [zkserver.SessionPassword].
func closeLeaderSession(f *fleet) (func(), error) {
	ctx, cancel := context.WithTimeout(f.t.Context(), 5*time.Second)
	defer cancel()
	if _, stat, err := f.client(ctx).Get(ctx, f.anyGroup().paths.Current(), false); err == nil {
		zk.CloseSession(ctx, zk.SessionHandle{Servers: f.ensemble.Addrs(), Session: stat.Owner, Password: zkserver.SessionPassword(stat.Owner)})
	}
	return noHeal, nil
}

// attackLease changes the lease znode that a fence names. It tries again if that is renewed meanwhile.
func attackLease(attack func(znode string, stat cluster.Stat) []cluster.Op) func(*fleet) (func(), error) {
	return func(f *fleet) (func(), error) {
		ctx, cancel := context.WithTimeout(f.t.Context(), 5*time.Second)
		defer cancel()
		p := f.anyGroup().paths
		for ctx.Err() == nil {
			data, stat, err := f.client(ctx).Get(ctx, p.Leader(), false)
			znode := cluster.ReadFence(p.Leader(), data, stat, err == nil).Record.LeaseZnode
			if znode == "" {
				return noHeal, nil
			}
			if _, stat, err = f.client(ctx).Get(ctx, znode, false); err != nil {
				return noHeal, nil
			}
			if _, err = f.client(ctx).Do(ctx, attack(znode, stat)...); !errors.Is(err, cluster.ErrBadVersion) {
				return noHeal, nil
			}
		}
		return noHeal, nil
	}
}

// subtree returns path and its descendants.
func subtree(all []string, path string) (some []string) {
	for _, p := range all {
		if p == path || strings.HasPrefix(p, path+"/") {
			some = append(some, p)
		}
	}
	return some
}

// victimIncarnation returns the victim's incarnation.
func victimIncarnation(g *group, all []string) []string {
	id := g.victim().id
	for _, path := range subtree(all, g.paths.Election()) {
		if inc, err := cluster.ParseIncarnation(path[strings.LastIndexByte(path, '/')+1:]); err == nil && inc.ID == id {
			return []string{path}
		}
	}
	return nil
}

// removeZnodes deletes znodes of a group in one transaction. It tries again if the tree changes meanwhile.
func removeZnodes(which func(g *group, all []string) []string) func(*fleet) (func(), error) {
	return func(f *fleet) (func(), error) {
		g := f.anyGroup()
		ctx, cancel := context.WithTimeout(f.t.Context(), 5*time.Second)
		defer cancel()
		for range 20 {
			all, err := f.tree(ctx, g.paths.Root)
			if err != nil {
				return noHeal, nil // the servers don't serve
			}
			var ops []cluster.Op
			for _, path := range slices.Backward(which(g, all)) {
				if slices.Contains(all, path) {
					ops = append(ops, cluster.Op{Kind: cluster.OpDelete, Path: path, Version: cluster.AnyVersion})
				}
			}
			if len(ops) == 0 {
				return noHeal, nil
			}
			if _, err = f.client(ctx).Do(ctx, ops...); err == nil || ctx.Err() != nil {
				return noHeal, nil
			}
		}
		return noHeal, nil
	}
}

// tree returns path and its descendants, parents first.
func (f *fleet) tree(ctx context.Context, path string) ([]string, error) {
	names, _, err := f.client(ctx).Children(ctx, path, false)
	if err != nil {
		return nil, err
	}
	all := []string{path}
	for _, name := range names {
		more, err := f.tree(ctx, path+"/"+name)
		if err != nil && !errors.Is(err, cluster.ErrNoNode) {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

// client returns the campaign's own session, and opens another one if the servers have lost it.
func (f *fleet) client(ctx context.Context) *zk.Session {
	select {
	case <-f.session.Done():
		if s, err := f.open(ctx); err == nil {
			f.session = s
		}
	default:
	}
	return f.session
}
