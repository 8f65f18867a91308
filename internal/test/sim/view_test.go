package sim

import (
	"time"

	"zkelectd/internal/cluster"
)

// view is what a server knew when it lost the quorum. It goes on answering from it until it notices.
type view struct {
	nodes map[string]reply
	lists map[string]reply
}

// captureView captures everything that daemons read.
func (w *world) captureView() *view {
	v := &view{make(map[string]reply), make(map[string]reply)}
	get := func(path string) {
		var r reply
		if r.data, r.stat, r.err = w.tree.Get(0, path, false); r.err == nil {
			v.nodes[path] = r
		}
	}
	leases, _, _ := w.tree.Children(0, cluster.LeaseZnodes(leaseBase), false)
	for _, name := range leases {
		get(cluster.LeaseZnodes(leaseBase) + "/" + name)
	}
	for _, g := range w.groups {
		for _, path := range []string{g.known.leader, g.known.elected, g.known.current, g.known.policy, g.known.control, g.known.roster, g.known.heir, g.paths.Slots()} {
			get(path)
		}
		for _, parent := range []string{g.known.nodes, g.known.election} {
			var r reply
			r.names, r.stat, r.err = w.tree.Children(0, parent, false)
			v.lists[parent] = r
			for _, name := range r.names {
				get(parent + "/" + name)
			}
		}
	}
	return v
}

func (v *view) read(r *request) reply {
	known := v.nodes
	if r.children {
		known = v.lists
	}
	rep, ok := known[r.path]
	if !ok {
		rep.err = cluster.ErrNoNode
	}
	return rep
}

// loseQuorum makes the host's server lose the quorum without noticing it.
func (h *host) loseQuorum(d time.Duration) {
	if h.net != netFine || h.w.down {
		return
	}
	h.net, h.view = netStale, h.w.captureView()
	if h.session != nil {
		h.session.stopHearing()
	}
	h.w.after(d, h.connect)
}
