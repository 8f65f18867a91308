package cli

import (
	"fmt"
	"path"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
)

// Over HTTP anyone can ask what a request would do, for one slot or for all slots of a group; nothing is submitted.
func TestForecastsOverHTTP(t *testing.T) {
	t.Parallel()
	f := newSlotFleet(t, 2)
	for _, id := range []string{"n1", "n2"} {
		f.configure(id, "dc1", 1, fmt.Sprintf("slots: {count: 2, per_node: 2}\nhttp: {listen: 'unix:%s'}\n"+
			"child: {command: [slot-child, '${ZKELECTD_SLOT}-of-${ZKELECTD_SLOTS}'], env: {LEDGER: LEDGERFILE}, stop_timeout: 400ms}\n", f.socket(id)))
		f.start(id)
	}
	f.settled("each daemon has a slot", 2, map[string]int{"n1": 1, "n2": 1})
	before := f.slot(0)
	leader, other := before.Current.Record.Node, f.slot(1).Current.Record.Node
	whatif := "/v1/groups/" + path.Base(f.paths.Root) + "/0/whatif?request="
	for _, c := range []struct{ query, want string }{
		{"move&node=" + other, `"moves leadership from ` + leader + " (dc1) to " + other + ` (dc1)"`},
		{"move&node=nobody", `"messages":[],"refused":"`},
		{"move", "to " + other + " (dc1) for 10m0s"},
		{"drain&node=" + other, "slot 1: " + leader + " (dc1) takes over"},
		{"pause&hard=true", "slot 1: " + other + " (dc1) continues to lead"},
		{"forget&all=true", `"refused":"no member is lost"`},
	} {
		if code, body := f.ask("n1", whatif+c.query); code != 200 || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %s, want %s", c.query, code, body, c.want)
		}
	}
	if after := f.slot(0); after.Control.Stat != before.Control.Stat || after.Control.Exists != before.Control.Exists || after.Elected.Stat != before.Elected.Stat {
		t.Errorf("something was written: %+v after %+v", after.Control, before.Control)
	}
}

// slot reads a slot, with the requests of the group.
func (f slotFleet) slot(i int) cluster.Snapshot {
	f.t.Helper()
	s, err := store.ReadAll(f.t.Context(), f.session, f.paths.OfSlot(i), false)
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// Whatif says that a member leads only if it does.
func TestForecastsSayWhoLeads(t *testing.T) {
	t.Parallel()
	ready, waiting := string(cluster.CurrentReady), status.StateWaiting
	for _, c := range []struct {
		f        forecast
		now, why string
	}{
		{forecast{Now: "a", Leader: "a", State: ready}, "a", "it already leads"},
		{forecast{Now: "a", Leader: "a", State: ready, LeaseUnconfirmed: "no answer"}, "a, unconfirmed", "it stays elected, but its lease is not confirmed: no answer"},
		{forecast{Now: "a", Leader: "a", State: waiting}, "none, a elected", "it stays elected, and does not lead yet"},
		{forecast{Now: "a", Leader: "a", State: string(cluster.CurrentProgress)}, "none, a elected", "it stays elected, and does not lead yet"},
		{forecast{Now: "a", Leader: "b", State: waiting, Cause: "failure", Reason: "a is gone"}, "none, a elected", "failure: a is gone"},
		{forecast{Leader: "b", State: status.StateNone, Cause: "first", Reason: "first election"}, "none", "first: first election"},
	} {
		if now, why := c.f.leadsNow(), c.f.why(); now != c.now || why != c.why {
			t.Errorf("%+v: %q, %q", c.f, now, why)
		}
	}
}
