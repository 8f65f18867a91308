package gameday

import (
	"fmt"
	"strings"
	"time"

	"zkelectd/internal/cluster"
)

// Holder is a READY leader, as it was seen first.
type Holder struct {
	Term int64
	Node string
}

// Observer measures how long there is no READY leader, and notes who leads. It must see each change of the group.
type Observer struct {
	holders []Holder
	last    time.Time     // when the group was last seen, or the drill began
	vacant  time.Time     // since when nobody is READY; zero if somebody is
	worst   time.Duration // the longest time without a READY leader
	blind   bool          // changes may have been missed since last
	fault   string
}

// Begin notes that the leader fails now.
func (o *Observer) Begin(now time.Time) { o.last = now }

// Lost notes that the group can't be seen, until the next Observe. If nobody is READY then, that is taken to be so since the group was
// last seen.
func (o *Observer) Lost() { o.blind = true }

// Observe notes a snapshot.
func (o *Observer) Observe(s cluster.Snapshot, now time.Time) {
	defer func() { o.last, o.blind = now, false }()
	c := s.Current.Record
	if !s.Current.Readable() || c.State != cluster.CurrentReady {
		if o.vacant.IsZero() && len(o.holders) > 0 {
			o.vacant = now
			if o.blind {
				o.vacant = o.last
			}
		}
		return
	}
	before := Holder{}
	if n := len(o.holders); n > 0 {
		before = o.holders[n-1]
	}
	next := Holder{c.Term, c.Node}
	switch {
	case next == before:
	case next.Term > before.Term:
		o.holders = append(o.holders, next)
		if o.vacant.IsZero() && before.Term != 0 {
			o.addGap(o.unseen(c.Time, now))
		}
	default:
		o.fault = fmt.Sprintf("%s was READY in term %d after %s in term %d", next.Node, next.Term, before.Node, before.Term)
	}
	if !o.vacant.IsZero() {
		o.addGap(now.Sub(o.vacant))
		o.vacant = time.Time{}
	}
}

// unseen returns the longest time that a gap which was not seen can have taken: the next leader was READY at a time of its own clock,
// if that is plausible.
func (o *Observer) unseen(ready, now time.Time) time.Duration {
	most := now.Sub(o.last)
	if byClock := ready.Sub(o.last); byClock > 0 && byClock < most {
		return byClock
	}
	return most
}

func (o *Observer) addGap(d time.Duration) { o.worst = max(o.worst, d) }

// Vacant returns how long nobody has been READY; 0 if somebody is.
func (o *Observer) Vacant(now time.Time) time.Duration {
	if o.vacant.IsZero() {
		return 0
	}
	return now.Sub(o.vacant)
}

// Worst returns the longest time without a READY leader, with the one that has not ended.
func (o *Observer) Worst(now time.Time) time.Duration { return max(o.worst, o.Vacant(now)) }

// Holders returns the READY leaders in the order in which they were seen.
func (o *Observer) Holders() []Holder { return o.holders }

// order describes the holders.
func order(holders []Holder) string {
	var all []string
	for _, h := range holders {
		all = append(all, fmt.Sprintf("%s (term %d)", h.Node, h.Term))
	}
	return strings.Join(all, ", ")
}
