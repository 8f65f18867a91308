package cluster

import "time"

// Heir is the member that would be elected if the leader was lost. The zero value says that no member would be.
type Heir struct {
	Node        string `json:"node,omitempty"`
	Site        string `json:"site,omitempty"`
	Incarnation string `json:"incarnation,omitempty"`
}

// HeirRecord is the record of heir: the heir to the decision of Term, where it is no longer the one that elected names.
// It is a znode of its own because every write of elected ends the lease of the leader, whose RENEW checks its version
// (docs/protocol.md, The heir). Nothing is decided by it, and no transaction but HEIR checks it.
type HeirRecord struct {
	Header
	Term int64 `json:"term"`
	Heir
	// Deputies are as in [Elected].
	Deputies []string `json:"deputies,omitempty"`
	// By is the elector's incarnation.
	By string `json:"by"`
	// Time is when it was written, by the elector's clock; for people.
	Time time.Time `json:"time"`
}

func (h *HeirRecord) validate(stat Stat) error { return checkTerm(h.Term, stat, TermSlack) }

// NextLeader returns the published heir to the present decision. known is false if none was published, as by an older
// elector.
func (s *Snapshot) NextLeader() (heir Heir, known bool) {
	switch {
	case !s.Elected.Readable():
		return Heir{}, false
	case s.Heir.Readable() && s.Heir.Record.Term == s.Elected.Record.Term:
		return s.Heir.Record.Heir, true
	case s.Elected.Record.Heir != nil:
		return *s.Elected.Record.Heir, true
	}
	return Heir{}, false
}

// SelfIsHeir reports whether the reader is the published heir. The elected member is not: it leads, or is about to.
func (s *Snapshot) SelfIsHeir() bool {
	heir, known := s.NextLeader()
	return known && !s.SelfLost && heir.Incarnation == s.Self.Name && s.Elected.Record.Incarnation != s.Self.Name
}

// HeirTx returns HEIR: next becomes the published heir, provided that what it was derived from still holds. The checks
// are those of ELECT: an elector that has been replaced, or that has not seen the newest decision, is refused.
func (p Paths) HeirTx(snap Snapshot, next HeirRecord) []Op {
	ops := []Op{p.alive(snap.Self.Name)}
	if next.Incarnation != "" {
		ops = append(ops, p.alive(next.Incarnation))
	}
	return append(ops,
		Op{Kind: OpCheck, Path: p.Leader(), Version: snap.Fence.Stat.Version},
		Op{Kind: OpCheck, Path: p.Elected(), Version: snap.Elected.Stat.Version},
		writeOp(p.Heir(), snap.Heir, Encode(&next)))
}

// AfterElection returns the group once the elected member leads, for a forecast.
func (s Snapshot) AfterElection(e Elected) Snapshot {
	s.Elected = Stored[Elected]{Exists: true, Record: e, Stat: s.Elected.Stat}
	s.Elected.Stat.Version++
	fence := Fence{Term: e.Term, Node: e.Node, Site: e.Site, Incarnation: e.Incarnation, State: FenceReady}
	s.Fence = Stored[Fence]{Exists: true, Record: fence, Stat: s.Fence.Stat}
	current := Current{Term: e.Term, Node: e.Node, Site: e.Site, Incarnation: e.Incarnation, State: CurrentReady}
	s.Current = Stored[Current]{Exists: true, Record: current}
	return s
}

// Without returns the group after the loss of the members that gone names, for a forecast. It does not modify s.
func (s Snapshot) Without(gone func(Member) bool) Snapshot {
	kept := make([]Member, 0, len(s.Members))
	for _, m := range s.Members {
		if !gone(m) {
			kept = append(kept, m)
		} else if s.Current.Readable() && s.Current.Record.Incarnation == m.Name {
			s.Current = Stored[Current]{}
		}
	}
	s.Members = kept
	return s
}
