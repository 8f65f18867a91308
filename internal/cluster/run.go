package cluster

import "time"

// Run is the record of run: the last run of the job of 'zkelectd exec' in the group. Only the holder of the term writes it.
type Run struct {
	Header
	// Term is the term in which the job was started, and Node where.
	Term int64  `json:"term"`
	Node string `json:"node"`
	// Ended is set once the job has ended by itself, with Status. A job that was killed or stopped has not ended.
	Ended  bool `json:"ended,omitempty"`
	Status int  `json:"status,omitempty"`
	// Started is when the job was started, by the clock of the ZooKeeper server; zero until it has ended, see [Stored.Stat].
	Started time.Time `json:"started,omitzero"`
}

// StartOf returns when a run was started, by the clock of the ZooKeeper server that ordered the write.
func StartOf(s Stored[Run]) time.Time {
	if s.Record.Started.IsZero() {
		return s.Stat.Time
	}
	return s.Record.Started
}
