package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// relations returns the groups that a group's policy refers to. For a slot, that is its group.
func relations(c Config) policy.Relations {
	r := policy.RelationsOf(c.Rules())
	for _, list := range [][]string{r.With, r.Apart} {
		for i, peer := range list {
			list[i], _, _ = strings.Cut(peer, "/")
		}
	}
	return r
}

// refuseCircles adds an error to each file whose group follows one that refers back to it. A group whose policy has not changed is not
// to blame.
func (d *directory) refuseCircles(running Host) {
	for refused := true; refused; {
		refused = false // what a refused group keeps may be part of another circle
		graph, changed := make(policy.Graph), make(map[string]*groupFile)
		for name, f := range d.files {
			now := running.find(name)
			switch {
			case len(f.errs) == 0:
				graph[name] = relations(f.cfg)
				if now == nil || !reflect.DeepEqual(relations(now.Config), graph[name]) {
					changed[name] = f
				}
			case now != nil:
				graph[name] = relations(now.Config)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(changed)) {
			if err := checkCircle(graph, name); err != nil {
				f, key := changed[name], "policy.rank"
				if len(policy.RelationsOf(cluster.Rules{Rank: f.cfg.Policy.Rank}).Peers()) == 0 {
					key = "policy.apart_strict"
				}
				f.errs.add(f.source[key], key, "%v", err)
				refused = true
			}
		}
	}
}

// checkCircle returns an error if the group is in a circle in which a group follows another one.
func checkCircle(graph policy.Graph, name string) error {
	if len(graph[name].Peers()) == 0 {
		return nil
	}
	for _, other := range slices.Sorted(maps.Keys(graph)) {
		if other != name && (graph.Cycle(name, other) == nil || graph.Cycle(other, name) == nil) {
			continue // not in a circle with it
		}
		if err := graph.CheckWith(other); err != nil {
			return err
		}
	}
	return nil
}
