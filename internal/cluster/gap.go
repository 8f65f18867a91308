package cluster

import (
	"fmt"
	"time"
)

// Gap is how long no leader's work has run: from when the end of the work of the last leader was confirmed, all of its
// processes being gone, or from its last proven moment. Each host adds what it has measured on its own monotonic clock
// to what it reads, so no clock of one host is compared with another's. What a transaction takes on its way is not
// counted, nor for how long its reader was cut off or stopped.
type Gap struct {
	For Duration `json:"for"`
	// Bound is empty if the end of the work is known.
	Bound Bound `json:"bound,omitempty"`
}

// Bound says how a [Gap] relates to the real one.
type Bound string

// The bounds of a gap.
const (
	// BoundAtLeast is that of a leader which was gone by then, without a word of when its work had ended. If somebody
	// has closed its session or deleted its records, that may have been later, but not after its lease.
	BoundAtLeast Bound = "at-least"
	// BoundAtMost is that of a leader which has renewed its lease then for the last time.
	BoundAtMost Bound = "at-most"
)

// AtLeast returns a gap of at least d.
func AtLeast(d time.Duration) *Gap { return &Gap{Duration(d), BoundAtLeast} }

// AtMost returns a gap of at most d.
func AtMost(d time.Duration) *Gap { return &Gap{Duration(d), BoundAtMost} }

// Plus returns the gap after it has gone on for d, as far as a record may say so; nil of nil.
func (g *Gap) Plus(d time.Duration) *Gap {
	if g == nil {
		return nil
	}
	return &Gap{min(g.For+Duration(max(0, d)), Duration(maxGap)), g.Bound}
}

// OrMore returns the gap after it has gone on for a time that is not known; nil of nil.
func (g *Gap) OrMore() *Gap {
	switch {
	case g == nil:
		return nil
	case g.Bound == BoundAtMost:
		return AtLeast(0)
	}
	return AtLeast(time.Duration(g.For))
}

// LongerGap returns the longer one of two gaps, of which each may be nil. A reader that has seen a record late counts
// too little.
func LongerGap(a, b *Gap) *Gap {
	if a == nil || b != nil && b.For > a.For {
		return b
	}
	return a
}

// Rounded returns it for people, in as many digits as matter.
func (g *Gap) Rounded() string {
	switch g.Bound {
	case BoundAtLeast:
		return "at least " + g.For.Rounded()
	case BoundAtMost:
		return "at most " + g.For.Rounded()
	}
	return g.For.Rounded()
}

// Rounded returns the duration in as many digits as matter.
func (d Duration) Rounded() string {
	v := time.Duration(d)
	if v < time.Second {
		return v.Round(100 * time.Microsecond).String()
	}
	return v.Round(10 * time.Millisecond).String()
}

// maxGap bounds a gap in a record: added to a time, a longer one could overflow.
const maxGap = 100 * 365 * 24 * time.Hour

// validate accepts any bound: that of a later version is one of those that [Gap.Rounded] does not know.
func (g *Gap) validate(name string) error {
	if g != nil && (g.For < 0 || time.Duration(g.For) > maxGap) {
		return fmt.Errorf("%s is %s, not between 0s and %s", name, g.For, maxGap)
	}
	return nil
}

// End notes that the leadership has ended. idle is how long no leader's work has run; nil if the writer does not know.
func (f *Fence) End(idle *Gap) {
	f.Led = f.Led || f.State == FenceReady
	f.Idle = idle
}

// LeastIdle returns what follows from the fence about how long no leader's work has run, once it is over.
func (f *Fence) LeastIdle() *Gap {
	if f.State == FenceReady {
		return AtLeast(0)
	}
	return f.Idle.OrMore()
}

// Idle returns how long no leader's work had run when the fence was written; nil if it does not say, or a member was
// READY.
func (s *Snapshot) Idle() *Gap {
	if !s.Fence.Readable() || s.Fence.Record.State == FenceReady {
		return nil
	}
	return s.Fence.Record.Idle
}
