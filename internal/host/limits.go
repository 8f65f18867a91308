package host

import "zkelectd/internal/group"

// maxMoves is how many groups this host, as their elector, moves by preemptions at once.
const maxMoves = 4

// maxStarts returns how many takeovers start their work at once on a host with a number of processor cores.
func maxStarts(cores int) int { return max(8, 2*cores) }

// limits gives the leaderships of an instance their access to the limits of the host. A host with one group has none.
func (i *instance) limits(h *Host, r *group.Registration) {
	if h.single() {
		return
	}
	i.starts, i.moves = h.starts.NewShare(), h.moves.NewShare()
	for n := range r.Leaderships {
		r.Leaderships[n].Options.Limits = group.Limits{Starts: i.starts, Moves: i.moves}
	}
}

func (i *instance) closeLimits() {
	if i.starts != nil {
		i.starts.Close()
		i.moves.Close()
	}
}
