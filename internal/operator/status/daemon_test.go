package status

import (
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// viewOf returns the view of a healthy standby after a change, a minute after boot.
func viewOf(change func(*Daemon)) Daemon {
	const now = time.Minute
	d := Daemon{
		Node: "a", Incarnation: "a-0000000000000001-n_0000000000", Phase: "standby", Loop: true, Session: true, Connected: true, SessionTimeout: cluster.Duration(6 * time.Second),
		UpdatedAt: now - 100*time.Millisecond, SnapshotAt: now - 20*time.Second, RespondedAt: now - 5*time.Second,
	}
	change(&d)
	return d.At(now)
}

func leading(d *Daemon) {
	d.Phase, d.Term, d.LeaseEnds = "leading", 7, time.Minute+time.Second
}

func TestStaleOrUnknownIsNo(t *testing.T) {
	both := func(a, b func(*Daemon)) func(*Daemon) { return func(d *Daemon) { a(d); b(d) } }
	for name, c := range map[string]struct {
		change func(*Daemon)
		// yes lists the checks that succeed: leader, heir, replica, health, live, ready.
		yes, state string
	}{
		"a standby":                           {func(d *Daemon) {}, "replica health live ready", "standby"},
		"the heir":                            {func(d *Daemon) { d.IsHeir, d.Heir = true, "a" }, "heir replica health live ready", "standby"},
		"the heir without a connection":       {func(d *Daemon) { d.IsHeir, d.Heir, d.Connected = true, "a", false }, "health live", "standby"},
		"not the heir":                        {func(d *Daemon) { d.Heir = "b" }, "replica health live ready", "standby"},
		"a leader":                            {leading, "leader health live ready", "leading"},
		"a leader without a connection":       {both(leading, func(d *Daemon) { d.Connected = false }), "leader health live", "leading"},
		"a leader whose lease has just ended": {both(leading, func(d *Daemon) { d.LeaseEnds = time.Minute }), "health live ready", "leading"},
		"a leader whose loop is stuck":        {both(leading, func(d *Daemon) { d.UpdatedAt = time.Minute - 3001*time.Millisecond }), "", "stuck"},
		"a loop that is late":                 {func(d *Daemon) { d.UpdatedAt = time.Minute - 3*time.Second }, "replica health live ready", "standby"},
		"a loop that has no view":             {func(d *Daemon) { d.UpdatedAt = 0 }, "", "stuck"},
		"a view of the future":                {func(d *Daemon) { d.UpdatedAt = 2 * time.Minute }, "", "stuck"},
		"a candidate":                         {func(d *Daemon) { leading(d); d.Phase = "starting" }, "health live ready", "starting"},
		"nothing heard for a while":           {func(d *Daemon) { d.RespondedAt = time.Minute - 17*time.Second }, "health live", "standby"},
		"nothing heard ever":                  {func(d *Daemon) { d.RespondedAt = 0 }, "health live", "standby"},
		"before the first snapshot":           {func(d *Daemon) { d.SnapshotAt = 0 }, "health live", "standby"},
		"without a connection":                {func(d *Daemon) { d.Connected = false }, "health live", "standby"},
		"an unhealthy host":                   {func(d *Daemon) { d.Unhealthy = "disk" }, "live ready", "standby"},
		"a session that has ended":            {both(leading, func(d *Daemon) { d.Session = false }), "live", "leading"},
		"between sessions":                    {func(d *Daemon) { d.Loop, d.Session, d.UpdatedAt = false, false, 1 }, "live", "connecting"},
		"not registered":                      {func(d *Daemon) { d.Incarnation = "" }, "live", "standby"},
		"at the session's end":                {func(d *Daemon) { d.Phase = "ended" }, "live", "ended"},
	} {
		d := viewOf(c.change)
		var yes []string
		for _, q := range []struct {
			name string
			why  func(Daemon) error
		}{{"leader", Daemon.CheckLeader}, {"heir", Daemon.CheckHeir}, {"replica", Daemon.CheckReplica}, {"health", Daemon.CheckHealthy}, {"live", Daemon.CheckLoop}, {"ready", Daemon.CheckReady}} {
			if q.why(d) == nil {
				yes = append(yes, q.name)
			}
		}
		if got := strings.Join(yes, " "); got != c.yes || d.State() != c.state || d.Leads() != strings.Contains(c.yes, "leader") {
			t.Errorf("%s: yes to %q in state %s, want %q, %s", name, got, d.State(), c.yes, c.state)
		}
	}
}

func TestLatestTerm(t *testing.T) {
	if got := (Daemon{ElectedTerm: 8}).LatestTerm(); got != 8 {
		t.Errorf("%d", got)
	}
	if got := (Daemon{Term: 7, ElectedTerm: 8}).LatestTerm(); got != 7 {
		t.Errorf("of one that holds 7: %d", got)
	}
}

// A host that does not take part in a group says so, whatever its last view of the group was.
func TestMembership(t *testing.T) {
	fresh := Daemon{
		Node: "a", Group: "billing", Incarnation: "a-n_0", Phase: "leading", Loop: true, Session: true, Connected: true, UpdatedAt: 1, SnapshotAt: 1, RespondedAt: 1,
		LeaseRemaining: cluster.Duration(time.Second), SessionTimeout: cluster.Duration(6 * time.Second),
	}
	for _, membership := range []string{MembershipJoining, MembershipLeaving, MembershipRefused, MembershipParked} {
		v := fresh
		v.Membership, v.MembershipReason = membership, "a reason"
		for name, err := range map[string]error{"leader": v.CheckLeader(), "replica": v.CheckReplica(), "health": v.CheckHealthy(), "ready": v.CheckReady()} {
			if err == nil || !strings.Contains(err.Error(), membership+": a reason") {
				t.Errorf("%s, %s: %v", membership, name, err)
			}
		}
		if v.State() != membership || v.CheckLoop() != nil || v.Summary().State != membership || len(v.Problems()) != 1 {
			t.Errorf("%s: %s, %v, %q", membership, v.State(), v.CheckLoop(), v.Problems())
		}
	}
	for _, membership := range []string{"", MembershipMember} {
		v := fresh
		v.Membership = membership
		if !v.Leads() || v.State() != "leading" || len(v.Problems()) > 0 {
			t.Errorf("%q: %v, %s", membership, v.CheckLeader(), v.State())
		}
	}
}

func TestProblemsAreListed(t *testing.T) {
	v := Daemon{Note: "n", Unkillable: "u", Newer: "w", Unhealthy: "h", Drift: "d", SlotsDrift: "s", Loop: true, Age: cluster.Duration(time.Hour)}
	if got := v.Problems(); len(got) != 7 {
		t.Errorf("%q", got)
	}
}

func TestHostAge(t *testing.T) {
	if got := (Host{{Age: 3}, {Age: 7}, {Age: 5}}).Age(); got != 7 {
		t.Errorf("%d", got)
	}
	if got := (Host{{Age: 3, Loop: true}, {Age: 7, Membership: MembershipParked}, {Age: 5, Loop: true}}).Age(); got != 5 {
		t.Errorf("with a parked group: %d", got)
	}
}

func TestHistogram(t *testing.T) {
	var h Histogram
	if count, sum, buckets := h.Cumulative(); count != 0 || sum != 0 || len(buckets) != len(Buckets) {
		t.Errorf("empty: %d %v %v", count, sum, buckets)
	}
	h.Observe(0)
	h.Observe(time.Millisecond) // a bound is in its bucket
	h.Observe(1100 * time.Microsecond)
	h.Observe(time.Hour)
	before := h.Clone()
	h.Observe(time.Second)
	count, sum, buckets := before.Cumulative()
	if count != 4 || sum < 3600.002 || sum > 3600.0022 || buckets[0.001] != 2 || buckets[0.0025] != 3 || buckets[60] != 3 {
		t.Errorf("%d %v %v", count, sum, buckets)
	}
	if _, _, buckets := h.Cumulative(); buckets[0.5] != 3 || buckets[1] != 4 {
		t.Errorf("%v", buckets)
	}
}
