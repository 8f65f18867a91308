package cli

import (
	"context"
	"path"
	"slices"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector"
	"zkelectd/internal/operator"
	"zkelectd/internal/policy"
	"zkelectd/internal/store"
)

// neighbors returns the group's name, and a function that reads who is elected in the groups that a policy refers to. What cannot be
// read is not known.
func (g group) neighbors() operator.Neighbors {
	return operator.Neighbors{Group: g.name, Others: func(ctx context.Context, r policy.Relations) elector.Placement {
		p := elector.Placement{Peers: make(map[string]string), Relations: make(policy.Graph)}
		read := make(map[string]bool)
		for next := r.Peers(); len(next) > 0; {
			peer := next[0]
			next = next[1:]
			if read[peer] || peer == g.name {
				continue
			}
			read[peer] = true
			node, relations, known := g.readPeer(ctx, peer)
			if !known {
				continue
			}
			if slices.Contains(r.Peers(), peer) {
				p.Peers[peer] = node
			}
			p.Relations[peer] = relations
			next = append(next, relations.Peers()...) // they may lead back to this group
		}
		return p
	}}
}

// readPeer returns the node that is elected in another group, or slot, and the groups that its policy refers to.
func (g group) readPeer(ctx context.Context, name string) (node string, r policy.Relations, known bool) {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	resource, slot := path.Split(name)
	if resource == "" {
		resource, slot = name, ""
	}
	found, err := store.FindGroup(ctx, g.session, path.Dir(g.paths.Root), path.Clean(resource))
	if err != nil || found.Err != nil {
		return "", r, false
	}
	paths := cluster.Paths{Root: found.Root, Slot: slot}
	data, stat, err := g.session.Get(ctx, paths.Elected(), false)
	elected := cluster.ReadStored[cluster.Elected](paths.Elected(), data, stat, err == nil)
	data, stat, err = g.session.Get(ctx, paths.Policy(), false)
	inForce := cluster.ReadStored[cluster.Policy](paths.Policy(), data, stat, err == nil)
	return elected.Record.Node, policy.RelationsOf(inForce.Record.Rules), true
}
