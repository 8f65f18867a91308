package status

import (
	"slices"
	"time"
)

// Totals are a daemon's counters since it started, over all its sessions.
type Totals struct {
	// Transitions counts the decisions that it has seen as the elector; ToReady is the time from each to READY, Leaderless
	// the time without a READY leader before. Each kind exists from the start with 0, as Prometheus sees no increase of a
	// counter that begins with 1.
	Transitions map[Transition]uint64
	ToReady     Histogram
	Leaderless  Histogram
	// Sessions counts the sessions, SessionsLost those that ended although the daemon was not asked to stop, Reconnects
	// how often a session continued on another connection.
	Sessions     uint64
	SessionsLost uint64
	Reconnects   uint64
	// HookFailures counts the runs of the hooks on_change, on_leader_change and on_proposal that have failed.
	HookFailures uint64
	// Restarts counts the restarts in place of a child that had exited by itself.
	Restarts uint64
	// Fenced counts the nodes that this daemon has fenced as a candidate.
	Fenced Attempts
	// Unfenceable counts the nodes that this daemon could not fence, as their agents have said last.
	Unfenceable int
	// Failsafe counts what leaders of this daemon have asked in failsafe mode.
	Failsafe FailsafeCounts
	// Reads and Writes are the response times of ZooKeeper: for the periodic read, and for the transactions of this
	// daemon's own leadership.
	Reads  Histogram
	Writes Histogram
	// Reloaded is when the running configuration was read. ReloadFailed reports whether a newer one has been refused
	// since.
	Reloaded     time.Time
	ReloadFailed bool
	// Certificate is the file with the certificate of this host for ZooKeeper; empty for none. It expires at
	// CertificateEnd, and should have been renewed by RenewBy.
	Certificate             string
	CertificateEnd, RenewBy time.Time
	// Pending counts the settings that differ in the configuration files and need a restart.
	Pending int
}

// Attempts counts what may fail.
type Attempts struct{ Succeeded, Failed uint64 }

// Add counts an attempt that has ended with an error, or with nil.
func (a *Attempts) Add(err error) {
	if err != nil {
		a.Failed++
	} else {
		a.Succeeded++
	}
}

// Transition is a kind of decision: its cause, and its result, [ResultReady] or [ResultFailed].
type Transition struct{ Cause, Result string }

// CauseOther stands for every cause that this version does not know.
const CauseOther = "other"

// The results of a decision.
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

// Clone returns a copy.
func (h Histogram) Clone() Histogram {
	h.counts = slices.Clone(h.counts)
	return h
}

// Cumulative returns the histogram as Prometheus expects it: each bucket counts everything up to its bound.
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
