package cluster

import "time"

// MaxGameDays is how many drills the record keeps.
const MaxGameDays = 20

// GameDays is the record of gamedays: the last drills, the oldest first. Only 'zkelectd gameday' writes it.
type GameDays struct {
	Header
	Drills []GameDay `json:"drills"`
}

// GameDay is the report of one drill.
type GameDay struct {
	Drill string `json:"drill"`
	// Slot is the slot that it was about, in a group with slots.
	Slot string `json:"slot,omitempty"`
	// Node is the leader that it was about, and Term the term.
	Node string `json:"node"`
	Term int64  `json:"term"`
	By   string `json:"by"`
	// Time is when it began, by the clock of the host of the command. A drill without a result that has not ended by Until was broken
	// off: its command was killed.
	Time  time.Time `json:"time"`
	Until time.Time `json:"until"`
	// Result is kept, late, aborted or interrupted; empty while the drill is under way.
	Result string `json:"result,omitempty"`
	// Leader is who led in the end.
	Leader string         `json:"leader,omitempty"`
	Checks []GameDayCheck `json:"checks,omitempty"`
}

// GameDayCheck compares a promise with what was seen.
type GameDayCheck struct {
	What     string `json:"what"`
	Promised string `json:"promised"`
	Seen     string `json:"seen"`
	Kept     bool   `json:"kept"`
}

// UnderWay returns a drill that has no result yet, and whether there is one.
func (g GameDays) UnderWay(now time.Time) (GameDay, bool) {
	for _, d := range g.Drills {
		if d.Result == "" && now.Before(d.Until) {
			return d, true
		}
	}
	return GameDay{}, false
}

// Put adds a drill, or replaces the one that the same person began at the same time. The oldest are dropped beyond [MaxGameDays].
func (g *GameDays) Put(drill GameDay) {
	for i, d := range g.Drills {
		if d.Time.Equal(drill.Time) && d.By == drill.By {
			g.Drills[i] = drill
			return
		}
	}
	g.Drills = append(g.Drills, drill)
	g.Drills = g.Drills[max(0, len(g.Drills)-MaxGameDays):]
}

// GameDaysTx returns the write of the drills. It fails with ErrBadVersion or ErrNodeExists if they have changed since they were read.
func (p Paths) GameDaysTx(read Stored[GameDays], next GameDays) []Op {
	return []Op{writeOp(p.GameDays(), read, Encode(&next))}
}
