package cluster

import (
	"testing"
	"time"
)

func TestGameDaysKeepTheLastDrills(t *testing.T) {
	t.Parallel()
	var g GameDays
	begin := time.Unix(1_800_000_000, 0)
	for i := range MaxGameDays + 5 {
		g.Put(GameDay{Drill: "move", By: "me", Time: begin.Add(time.Duration(i) * time.Hour), Result: "kept"})
	}
	if len(g.Drills) != MaxGameDays || !g.Drills[0].Time.Equal(begin.Add(5*time.Hour)) {
		t.Errorf("%d drills, the first at %s", len(g.Drills), g.Drills[0].Time)
	}
	last := g.Drills[MaxGameDays-1]
	last.Result = ""
	last.Until = last.Time.Add(time.Minute)
	g.Put(last)
	if d, found := g.UnderWay(last.Time.Add(time.Second)); len(g.Drills) != MaxGameDays || !found || !d.Time.Equal(last.Time) {
		t.Errorf("%d drills, under way: %v, %+v", len(g.Drills), found, d)
	}
	if _, found := g.UnderWay(last.Until); found {
		t.Error("a drill that was broken off is under way")
	}
}
