package status

import (
	"slices"
	"time"
)

// Totals are what a daemon has counted since it began, over all its sessions.
type Totals struct {
	// Transitions, ToReady and Leaderless are of the decisions that it has seen as the elector: how many, how long from one
	// to READY, and for how long nobody was READY before. Each kind is there from the start, with 0: of a counter that
	// begins with 1, Prometheus sees no increase.
	Transitions map[Transition]uint64
	ToReady     Histogram
	Leaderless  Histogram
	// Sessions is how many were begun, SessionsLost how many of them ended although nobody had asked the daemon to stop,
	// Reconnects how often one went on with another connection.
	Sessions     uint64
	SessionsLost uint64
	Reconnects   uint64
	// Restarts is how often a child that had exited by itself was started again in place.
	Restarts uint64
	// Reads and Writes are how long ZooKeeper took to answer: the survey, and the daemon's own transactions.
	Reads  Histogram
	Writes Histogram
	// Reloaded is when the running configuration was read, ReloadFailed whether a newer one was refused since.
	Reloaded     time.Time
	ReloadFailed bool
}

// Transition is a kind of decision, and what became of it: [ResultReady] or [ResultFailed].
type Transition struct{ Cause, Result string }

// CauseOther stands for causes that this version does not know.
const CauseOther = "other"

// What becomes of a decision.
const (
	ResultReady  = "ready"
	ResultFailed = "failed"
)

// Buckets are the upper bounds of every histogram, in seconds: from one write to ZooKeeper to the loss of a site.
var Buckets = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}

// Histogram counts durations; its zero value is empty.
type Histogram struct {
	counts []uint64 // one for each of [Buckets]
	count  uint64
	sum    time.Duration
}

// Observe counts a duration.
func (h *Histogram) Observe(d time.Duration) {
	if h.counts == nil {
		h.counts = make([]uint64, len(Buckets))
	}
	if i, _ := slices.BinarySearch(Buckets, d.Seconds()); i < len(h.counts) {
		h.counts[i]++
	}
	h.count++
	h.sum += d
}

// Clone is a copy that does not change any more.
func (h Histogram) Clone() Histogram {
	h.counts = slices.Clone(h.counts)
	return h
}

// Cumulative is the histogram as Prometheus wants it.
func (h Histogram) Cumulative() (count uint64, sum float64, buckets map[float64]uint64) {
	buckets = make(map[float64]uint64, len(Buckets))
	var below uint64
	for i, bound := range Buckets {
		if h.counts != nil {
			below += h.counts[i]
		}
		buckets[bound] = below
	}
	return h.count, h.sum.Seconds(), buckets
}
