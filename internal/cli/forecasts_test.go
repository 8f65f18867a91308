package cli

import (
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
)

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
