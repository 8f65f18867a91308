package transition

import (
	"fmt"
	"slices"
	"time"

	"zkelectd/internal/cluster"
)

// Fencing says whether and how a member fences earlier holders for which it would have to wait (docs/protocol.md,
// Fencing).
type Fencing struct {
	Enabled bool
	// Required is set if the work must not start before all earlier holders that are known have been fenced.
	Required bool
	// SkipWait ends the lease wait for a holder that has been fenced.
	SkipWait bool
	// Limit is how long fencing one of them may take.
	Limit time.Duration
}

// fencing is what a machine knows about fencing in one term.
type fencing struct {
	node  string // that is being fenced, on that host; empty if none is
	host  string
	since time.Duration
	tried []cluster.EarlierHolder // that have been
	ended bool                    // what fences it is to end because the lease wait is over
}

// owes returns how long the candidate must wait, why, and for whom. Holders that another candidate has fenced are left
// out if the member does not wait for those.
func (m *Machine) owes(s *cluster.Snapshot) (time.Duration, string, []cluster.EarlierHolder) {
	_, why := s.Owed(m.opt.Budget.LeaseWait)
	earlier := m.remaining(s.Earlier(m.opt.Budget.LeaseWait))
	return time.Duration(cluster.LongestWait(earlier)), why, earlier
}

// remaining returns the holders that must be waited for.
func (m *Machine) remaining(earlier []cluster.EarlierHolder) []cluster.EarlierHolder {
	if !m.opt.Fencing.Enabled || !m.opt.Fencing.SkipWait {
		return earlier
	}
	return slices.DeleteFunc(slices.Clone(earlier), func(h cluster.EarlierHolder) bool { return h.Fenced })
}

// fencingLimit returns how long fencing may delay the takeover beyond the lease wait; 0 if it does not.
func (m *Machine) fencingLimit(earlier []cluster.EarlierHolder) cluster.Duration {
	if !m.opt.Fencing.Enabled || !m.opt.Fencing.Required {
		return 0
	}
	var limit time.Duration
	for _, h := range earlier {
		if m.mustFence(h) {
			limit += m.opt.Fencing.Limit
		}
	}
	return cluster.Duration(min(limit, cluster.MaxWait))
}

// mustFence reports whether a holder must be fenced. A member never fences its own node: its earlier work is proven
// dead before it registers again. It waits for another host that had its id.
func (m *Machine) mustFence(h cluster.EarlierHolder) bool {
	return m.opt.Fencing.Enabled && h.Node != "" && h.Node != m.opt.Self.ID && !h.Fenced
}

// waitOver returns by when the leases of all earlier holders are over.
func (m *Machine) waitOver() time.Duration {
	return m.term.acquiredAt + time.Duration(m.term.fence.Owed)
}

// fenceNext fences the next earlier holder, one at a time. It is done only while the term is held: so only the newest
// candidate fences.
func (m *Machine) fenceNext() {
	f := &m.term.fencing
	if f.node != "" || m.term.stop != nil {
		return
	}
	for _, h := range m.term.fence.Earlier {
		tried := slices.ContainsFunc(f.tried, func(t cluster.EarlierHolder) bool { return t.Is(h.Node, h.Host) })
		if !m.mustFence(h) || tried || !m.opt.Fencing.Required && m.now >= m.waitOver() {
			continue
		}
		f.node, f.host, f.since, f.tried = h.Node, h.Host, m.now, append(f.tried, h)
		m.do(FenceNode{Term: m.term.number, Holder: h})
		return
	}
}

// awaitsEarlier reports whether the work must not start yet: an older lease may still be running, or a node must be
// fenced. What is not required ends with the lease wait.
func (m *Machine) awaitsEarlier() bool {
	if !m.due(m.waitOver()) || m.opt.Fencing.Required && slices.ContainsFunc(m.term.fence.Earlier, m.mustFence) {
		return true
	}
	f := &m.term.fencing
	if f.node != "" && !f.ended {
		f.ended = true
		m.do(KillTask{})
	}
	return f.node != ""
}

// Fencing returns the node that is being fenced, and since when; empty if none is.
func (m *Machine) Fencing() (node string, since time.Duration) {
	return m.term.fencing.node, m.term.fencing.since
}

// apply records the outcome. Success proves that the lease of this holder is over, and nothing about any other.
func (e NodeFenced) apply(m *Machine) {
	t := &m.term
	if t.number != e.Term || t.fencing.node != e.Node || t.fencing.host != e.Host {
		return
	}
	t.fencing.node = ""
	i := slices.IndexFunc(t.fence.Earlier, func(h cluster.EarlierHolder) bool { return h.Is(e.Node, e.Host) })
	if i < 0 {
		return
	}
	result := cluster.FencingResult{Node: e.Node, Term: t.fence.Earlier[i].Term, By: cluster.FencingText(e.By)}
	if e.Err != nil {
		result.Error = cluster.FencingText(e.Err.Error())
	}
	if len(t.fence.Fencing) < cluster.MaxEarlier {
		t.fence.Fencing = append(slices.Clip(t.fence.Fencing), result)
	}
	switch {
	case e.Err == nil:
		t.fence.Earlier = slices.Clone(t.fence.Earlier)
		t.fence.Earlier[i].Fenced = true
		t.fence.Earlier = m.remaining(t.fence.Earlier)
		if owed := cluster.LongestWait(t.fence.Earlier); m.opt.Fencing.SkipWait && owed < t.fence.Owed {
			t.fence.Owed = owed
			t.fence.Wait += ", until " + e.Node + " was fenced"
		}
	case m.opt.Fencing.Required:
		m.giveUp(Stop{Reason: fmt.Sprintf("%s could not be fenced, and fencing.required permits no takeover "+
			"without that: %v", e.Node, e.Err)})
	}
}
