package replay

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"zkelectd/internal/cluster"
)

// facts are what the recordings show of the records of one group in ZooKeeper, in whichever host's snapshots.
type facts struct {
	// elected has the decisions by the transaction that wrote them: ZooKeeper orders them for all hosts.
	elected map[transaction]sighting
	// holders has who has held leadership in a term, by the fence and current.
	holders map[int64]map[string]sighting
}

// transaction is a write. Ids order the writes of servers that keep their data; servers that lost their data begin anew with low ids,
// which the time of the write shows.
type transaction struct{ time, id int64 }

func (t transaction) compare(o transaction) int {
	return cmp.Or(cmp.Compare(t.time, o.time), cmp.Compare(t.id, o.id))
}

// sighting is a term and an incarnation, and where it was seen.
type sighting struct {
	term        int64
	incarnation string
	where       string
}

func newFacts() *facts {
	return &facts{elected: make(map[transaction]sighting), holders: make(map[int64]map[string]sighting)}
}

// see notes what one host has read of a slot, or of a group without slots.
func (f *facts) see(s cluster.SlotState, where string) {
	if e := s.Elected; e.Readable() {
		f.elected[transaction{e.Stat.Time.UnixMilli(), e.Stat.Modified}] = sighting{e.Record.Term, e.Record.Incarnation, where}
	}
	if r := s.Fence.Record; s.Fence.Readable() && (r.State == cluster.FenceHeld || r.State == cluster.FenceReady) {
		f.hold(r.Term, r.Incarnation, where+": the fence is "+string(r.State))
	}
	if r := s.Current.Record; s.Current.Readable() {
		f.hold(r.Term, r.Incarnation, where+": current is "+string(r.State))
	}
}

func (f *facts) hold(term int64, incarnation, where string) {
	if f.holders[term] == nil {
		f.holders[term] = make(map[string]sighting)
	}
	if _, known := f.holders[term][incarnation]; !known {
		f.holders[term][incarnation] = sighting{term, incarnation, where}
	}
}

// checkTerms checks that each decision has a higher term than the one before. anew counts the decisions whose transaction id is not
// higher: the servers had lost their data, or their clocks were set back, so nothing orders these two.
func (f *facts) checkTerms(group string) (checked, anew int, faults []string) {
	var before sighting
	var last transaction
	for i, id := range slices.SortedFunc(maps.Keys(f.elected), transaction.compare) {
		e := f.elected[id]
		switch {
		case i > 0 && id.id <= last.id:
			anew++
		case i > 0 && e.term <= before.term:
			faults = append(faults, fmt.Sprintf("%s: term %d follows term %d:\n    %s elected %s\n    later %s elected %s",
				group, e.term, before.term, before.where, before.incarnation, e.where, e.incarnation))
		}
		before, last = e, id
	}
	return len(f.elected), anew, faults
}

// checkHolders checks S2: only the incarnation that was elected in a term holds leadership in it. unknown counts the terms of which no
// recording shows the decision.
func (f *facts) checkHolders(group string) (checked, unknown int, faults []string) {
	decided := make(map[int64]sighting)
	for _, e := range f.elected {
		if other, known := decided[e.term]; !known || cmp.Compare(e.where, other.where) < 0 {
			decided[e.term] = e
		}
	}
	for _, term := range slices.Sorted(maps.Keys(f.holders)) {
		e, known := decided[term]
		all := slices.SortedFunc(maps.Values(f.holders[term]), func(a, b sighting) int { return cmp.Compare(a.incarnation, b.incarnation) })
		if !known {
			unknown++
		}
		if len(all) > 1 {
			faults = append(faults, fmt.Sprintf("%s: two incarnations held leadership in term %d:\n    %s, %s\n    %s, %s",
				group, term, all[0].where, all[0].incarnation, all[1].where, all[1].incarnation))
			continue
		}
		checked++
		if known && all[0].incarnation != e.incarnation {
			faults = append(faults, fmt.Sprintf("%s: %s held leadership in term %d, but %s was elected:\n    %s\n    %s", group, all[0].incarnation, term, e.incarnation,
				all[0].where, e.where))
		}
	}
	return checked, unknown, faults
}
