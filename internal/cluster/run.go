package cluster

import "time"

// Run is the record of run: the last run of the job of 'zkelectd exec' in the group. Only the holder of the term writes
// it.
type Run struct {
	Header
	// Term is the term in which the job was started, and Node where.
	Term int64  `json:"term"`
	Node string `json:"node"`
	// Ended is set once the job has ended by itself, with Status. A job that was killed or stopped has not ended.
	Ended  bool `json:"ended,omitempty"`
	Status int  `json:"status,omitempty"`
	// Started is when the job was started, by the clock of the ZooKeeper server; zero until it has ended, see
	// [Stored.Stat].
	Started time.Time `json:"started,omitzero"`
	// OncePer is for how long after the start there is no other run if this one has ended, or, with AtMostOnce, even if
	// it has not. It only informs people: a later run goes by its own flags.
	OncePer    Duration `json:"once_per,omitempty"`
	AtMostOnce bool     `json:"at_most_once,omitempty"`
}

// StartOf returns when a run was started, by the clock of the ZooKeeper server that ordered the write.
func StartOf(s Stored[Run]) time.Time {
	if s.Record.Started.IsZero() {
		return s.Stat.Time
	}
	return s.Record.Started
}

// NextRun returns from when on there may be another run, by the clock of the ZooKeeper server and the flags of the last
// run; zero if at any time. running is set if that one still runs.
func NextRun(s Stored[Run], running bool) time.Time {
	r := s.Record
	if r.OncePer == 0 || !r.Ended && !r.AtMostOnce && !running {
		return time.Time{}
	}
	return StartOf(s).Add(time.Duration(r.OncePer))
}
