package httpapi

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"zkelectd/internal/cluster"
	"zkelectd/internal/status"
	"zkelectd/internal/testhelper"
)

// someTotals returns counters with values.
func someTotals() status.Totals {
	t := status.Totals{
		Transitions: map[status.Transition]uint64{{Cause: "failure", Result: "ready"}: 2, {Cause: "overdue", Result: "failed"}: 1},
		Sessions:    3, SessionsLost: 2, Reconnects: 5, Restarts: 4, Reloaded: time.Unix(1700000000, 0), ReloadFailed: true,
	}
	t.ToReady.Observe(30 * time.Millisecond)
	t.Leaderless.Observe(4 * time.Second)
	t.Reads.Observe(time.Millisecond)
	return t
}

// leadingElector returns the view of a leader that is also the elector.
func leadingElector() status.Daemon {
	v := leader()
	v.Elector, v.Paused, v.PausedHard, v.Child, v.Blocked, v.Drift = true, true, true, true, "paused", "it differs"
	v.Sites = map[string]status.SiteCounts{"dc1": {Eligible: 2, Ineligible: 1, Excluded: 1}, "d\xffc2": {Eligible: 1}}
	return v
}

func scrape(t *testing.T, v status.Daemon) string {
	t.Helper()
	rec := serveRequest(New(Options{View: func() status.Daemon { return v }, Totals: someTotals, Version: "v1"}), "GET", "/metrics")
	if rec.Code != 200 {
		t.Fatalf("%d %s", rec.Code, rec.Body)
	}
	return rec.Body.String()
}

func TestMetrics(t *testing.T) {
	silent := standby()
	silent.Elector = true
	silent.Age = cluster.Duration(time.Hour)
	cut, deaf := leadingElector(), leadingElector()
	cut.Connected, deaf.LastResponseAge = false, cluster.Duration(time.Minute)
	hung, dead := stuck(), stuck()
	hung.Child, dead.Child, dead.LeaseRemaining = true, true, 0
	for name, c := range map[string]struct {
		view      status.Daemon
		have, not []string
	}{
		"a leader that elects": {leadingElector(), []string{
			"zkelectd_is_leader 1", "zkelectd_is_elector 1", "zkelectd_lease_remaining_seconds 1.5", "zkelectd_term 7", `zkelectd_state{state="leading"} 1`,
			`zkelectd_members{eligible="true",site="dc1"} 2`, `zkelectd_members{eligible="false",site="dc1"} 1`, `zkelectd_members{eligible="true",site="d?c2"} 1`,
			`zkelectd_excluded_members{site="dc1"} 1`, `zkelectd_paused{mode="soft"} 0`, `zkelectd_paused{mode="hard"} 1`, "zkelectd_lease_seconds 2.7", "zkelectd_preemption_blocked 1", "zkelectd_no_eligible_members 0",
			`zkelectd_transitions_total{cause="failure",result="ready"} 2`, `zkelectd_transitions_total{cause="overdue",result="failed"} 1`,
			`zkelectd_transition_duration_seconds_bucket{le="0.05"} 1`, `zkelectd_transition_duration_seconds_bucket{le="0.025"} 0`, "zkelectd_leaderless_duration_seconds_sum 4",
			`zkelectd_zookeeper_request_duration_seconds_count{operation="read"} 1`, "zkelectd_session_expirations_total 2", "zkelectd_session_reconnects_total 5",
			"zkelectd_child_up 1", "zkelectd_child_restarts_total 4", "zkelectd_config_last_reload_successful 0", "zkelectd_config_last_reload_success_timestamp_seconds 1.7e+09",
			"zkelectd_policy_drift 1", `zkelectd_group_info{group="/c",node="a",site="dc1"} 1`, `zkelectd_build_info{goversion=`,
		}, nil},
		"a standby":                                    {standby(), []string{"zkelectd_is_leader 0", "zkelectd_is_elector 0", "zkelectd_session_up 1"}, []string{"zkelectd_members", "zkelectd_paused"}},
		"a leader that is stuck":                       {stuck(), []string{"zkelectd_is_leader 0", `zkelectd_state{state="stuck"} 1`, "zkelectd_view_age_seconds 3600", "zkelectd_session_up 0"}, nil},
		"an elector that is stuck":                     {silent, []string{"zkelectd_is_elector 0"}, []string{"zkelectd_paused"}},
		"the child of a stuck daemon during the lease": {hung, []string{"zkelectd_child_up 1"}, nil},
		"the child of a stuck daemon after the lease":  {dead, []string{"zkelectd_child_up 0"}, nil},
		"an elector that is cut off":                   {cut, []string{"zkelectd_is_elector 0", "zkelectd_is_leader 1"}, []string{"zkelectd_members", "zkelectd_paused"}},
		"an elector without responses from ZooKeeper":  {deaf, []string{"zkelectd_is_elector 0"}, []string{"zkelectd_members"}},
		"before there is a view":                       {status.Daemon{}, []string{`zkelectd_state{state="connecting"} 1`, "zkelectd_session_up 0"}, nil},
	} {
		body := scrape(t, c.view)
		for _, want := range c.have {
			if !strings.Contains(body, "\n"+want) {
				t.Errorf("%s: no %s in\n%s", name, want, body)
			}
		}
		for _, no := range c.not {
			if strings.Contains(body, no) {
				t.Errorf("%s: %s exists", name, no)
			}
		}
	}
}

// The exported metrics match the table and follow Prometheus' naming conventions.
func TestMetricsFollowConventions(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	New(Options{View: leadingElector, Totals: someTotals, Version: "v1", Registry: registry})
	problems, err := testutil.GatherAndLint(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, f := range families {
		i := slices.IndexFunc(metrics, func(m metric) bool { return m.name == f.GetName() })
		if i < 0 {
			t.Errorf("%s is not in the table", f.GetName())
			continue
		}
		seen[f.GetName()] = true
		if kind := strings.ToLower(f.GetType().String()); kind != metrics[i].kind {
			t.Errorf("%s is a %s, but the table says %s", f.GetName(), kind, metrics[i].kind)
		}
	}
	for _, m := range metrics {
		if !seen[m.name] {
			t.Errorf("%s is never exported", m.name)
		}
	}
}

// The reference is generated from the table.
func TestMetricsReference(t *testing.T) {
	var b strings.Builder
	b.WriteString("| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n")
	for _, m := range metrics {
		labels := strings.Join(m.labels, "`, `")
		if labels != "" {
			labels = "`" + labels + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, labels, m.help)
	}
	testhelper.CheckDocument(t, "../../docs/metrics.md", b.String())
}
