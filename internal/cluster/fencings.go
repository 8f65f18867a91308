package cluster

import "time"

// MaxFencings is how many acts the record keeps.
const MaxFencings = 50

// Fencings is the record of fencings: what people have fenced, the oldest first. Only 'zkelectd fence' writes it; what
// candidates have fenced is in the history.
type Fencings struct {
	Header
	Acts []FencingAct `json:"acts"`
}

// FencingAct is one act of a person.
type FencingAct struct {
	Node string `json:"node"`
	By   string `json:"by"`
	// Time is when it began, by the clock of the host of the command. Until it has an outcome, Result is empty.
	Time time.Time `json:"time"`
	// Result is fenced or failed; Level is what has fenced the node, and Error why that failed.
	Result string `json:"result,omitempty"`
	Level  string `json:"level,omitempty"`
	Error  string `json:"error,omitempty"`
}

// The results of an act.
const (
	FencingSucceeded = "fenced"
	FencingFailed    = "failed"
)

// Put adds an act, or replaces the one that the same person began at the same time. The oldest are dropped beyond
// [MaxFencings].
func (f *Fencings) Put(act FencingAct) {
	for i, a := range f.Acts {
		if a.Time.Equal(act.Time) && a.By == act.By && a.Node == act.Node {
			f.Acts[i] = act
			return
		}
	}
	f.Acts = append(f.Acts, act)
	f.Acts = f.Acts[max(0, len(f.Acts)-MaxFencings):]
}

// FencingsTx returns the write of the acts. It fails with ErrBadVersion or ErrNodeExists if they have changed since
// they were read.
func (p Paths) FencingsTx(read Stored[Fencings], next Fencings) []Op {
	return []Op{writeOp(p.Fencings(), read, Encode(&next))}
}
