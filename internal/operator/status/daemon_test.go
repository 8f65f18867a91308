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
		PublishedAt: now - 100*time.Millisecond, SnapshotAt: now - 20*time.Second, RespondedAt: now - 5*time.Second,
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
		"a leader whose loop is stuck":        {both(leading, func(d *Daemon) { d.PublishedAt = time.Minute - 3001*time.Millisecond }), "", "stuck"},
		"a loop that is late":                 {func(d *Daemon) { d.PublishedAt = time.Minute - 3*time.Second }, "replica health live ready", "standby"},
		"a loop that has published nothing":   {func(d *Daemon) { d.PublishedAt = 0 }, "", "stuck"},
		"a view of the future":                {func(d *Daemon) { d.PublishedAt = 2 * time.Minute }, "", "stuck"},
		"a candidate":                         {func(d *Daemon) { leading(d); d.Phase = "starting" }, "health live ready", "starting"},
		"nothing heard for a while":           {func(d *Daemon) { d.RespondedAt = time.Minute - 17*time.Second }, "health live", "standby"},
		"nothing heard ever":                  {func(d *Daemon) { d.RespondedAt = 0 }, "health live", "standby"},
		"before the first snapshot":           {func(d *Daemon) { d.SnapshotAt = 0 }, "health live", "standby"},
		"without a connection":                {func(d *Daemon) { d.Connected = false }, "health live", "standby"},
		"an unhealthy host":                   {func(d *Daemon) { d.Unhealthy = "disk" }, "live ready", "standby"},
		"a session that has ended":            {both(leading, func(d *Daemon) { d.Session = false }), "live", "leading"},
		"between sessions":                    {func(d *Daemon) { d.Loop, d.Session, d.PublishedAt = false, false, 1 }, "live", "connecting"},
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
