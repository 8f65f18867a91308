package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
)

// A time of day is the next one in the zone of the host, also where the clock is set forward or back.
func TestTimesOfScheduledMoves(t *testing.T) {
	t.Parallel()
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	noon := time.Date(2026, 11, 23, 12, 0, 0, 0, zone)
	for _, c := range []struct {
		now        time.Time
		text, want string
	}{
		{noon, "14:30", "2026-11-23T14:30:00+01:00"},
		{noon, "14:30:05", "2026-11-23T14:30:05+01:00"},
		{noon, "02:00", "2026-11-24T02:00:00+01:00"},
		{noon, "12:00", "2026-11-24T12:00:00+01:00"},
		{noon, "2026-11-24T02:00:00Z", "2026-11-24T02:00:00Z"},
		{noon, "2026-11-24T02:00:00.5+03:00", "2026-11-24T02:00:00.5+03:00"},
		{time.Date(2026, 12, 31, 23, 0, 0, 0, zone), "02:00", "2027-01-01T02:00:00+01:00"},
		{time.Date(2026, 3, 28, 23, 0, 0, 0, zone), "02:30", "2026-03-30T02:30:00+02:00"}, // there is no 02:30 on the 29th
	} {
		got, err := parseTime(c.text, c.now)
		want, _ := time.Parse(time.RFC3339, c.want)
		if err != nil || !got.Equal(want) {
			t.Errorf("%s at %s: %s, %v, want %s", c.text, c.now, got, err, c.want)
		}
	}
	for text, want := range map[string]string{
		"": "write a time of day", "2h": "write a time of day", "25:00": "write a time of day", "tomorrow": "write a time of day",
		"2026-11-23T11:00:00+01:00": "is in the past",
	} {
		if _, err := parseTime(text, noon); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func (f *fleet) schedules() (all []listedSchedule) {
	f.t.Helper()
	out := f.exits(0, "move", "--scheduled", "-o", "json")
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		f.t.Fatalf("%v: %s", err, out)
	}
	return all
}

// soon is enough for a command to start on a busy host.
const soon = 4 * time.Second

func TestScheduledMovesAreCarriedOutDroppedAndCanceled(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b", "c")
	if out := f.exits(0, "move", "--scheduled"); !strings.Contains(out, "no move is scheduled") {
		t.Error(out)
	}
	f.exits(0, "move", "--cancel")
	f.exits(statusError, "move", "b", "--at", "2h")
	f.exits(statusError, "move", "b", "--cancel")
	f.exits(statusRefused, "move", "nobody", "--at", "23:59:59")

	f.exits(0, "move", "b", "--at", time.Now().Add(3*time.Hour).Format(time.RFC3339), "--reason", "patch")
	if all := f.schedules(); len(all) != 1 || all[0].State != "scheduled" || all[0].Target != "b" || all[0].Reason != "patch" || all[0].Ended != nil {
		t.Errorf("%+v", all)
	}
	for command, want := range map[string]string{"status": "moves to b at ", "explain": "moves to b at ", "move --scheduled": "(in 3h0m)"} {
		if out := f.exits(0, strings.Fields(command)...); !strings.Contains(out, want) {
			t.Errorf("%s: %s, want %q", command, out, want)
		}
	}
	if out := f.exits(0, "move", "--cancel"); !strings.Contains(out, "canceled: moves to b at ") {
		t.Error(out)
	}
	if all := f.schedules(); len(all) != 1 || all[0].State != "canceled" {
		t.Errorf("%+v", all)
	}

	due := time.Now().Add(soon)
	f.exits(0, "move", "b", "--at", due.Format(time.RFC3339Nano))
	f.until("b leads", func(g status.Group) bool { return g.Leader == "b" && g.State == string(cluster.CurrentReady) })
	if time.Now().Before(due) {
		t.Errorf("it was carried out before %s", due)
	}
	if g := status.Of(f.groupName(), f.paths.Root, f.snapshot()); g.Cause != string(cluster.CauseMove) || !strings.HasPrefix(g.Reason, "moved to b, scheduled for ") {
		t.Errorf("%s: %s", g.Cause, g.Reason)
	}
	if all := f.schedules(); len(all) != 2 || all[0].State != "carried-out" {
		t.Errorf("%+v", all)
	}

	f.exits(0, "cordon", "c")
	if out := f.exits(0, "move", "c", "--at", time.Now().Add(soon).Format(time.RFC3339Nano)); !strings.Contains(out, "it would be dropped if it was due now: ") {
		t.Error(out)
	}
	g := f.until("it is dropped", func(g status.Group) bool { return len(g.Problems) > 0 })
	if g.Leader != "b" || !strings.Contains(g.Problems[0], "was dropped: cordoned by ") {
		t.Errorf("%s leads, problems %q", g.Leader, g.Problems)
	}
	if out := f.exits(0, "history"); !strings.Contains(out, "dropped: cordoned by ") || !strings.Contains(out, "carried-out") {
		t.Error(out)
	}
	f.exits(0, "move", "--cancel")
	if g := status.Of(f.groupName(), f.paths.Root, f.snapshot()); len(g.Problems) > 0 {
		t.Errorf("acknowledged, problems %q", g.Problems)
	}
	f.checkInvariants()
}
