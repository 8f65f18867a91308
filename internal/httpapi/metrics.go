package httpapi

import (
	"cmp"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"zkelectd/internal/cluster"
	"zkelectd/internal/status"
)

// metric is a metric family and the function that derives its values. docs/metrics.md is generated from these.
type metric struct {
	name   string
	kind   string // gauge, counter or histogram
	labels []string
	help   string
	derive func(s metricsData, emit emitter)
}

// metricsData is the data that the metrics are derived from at each scrape, so that they agree with the other responses.
type metricsData struct {
	status.Daemon
	totals  status.Totals
	version string
}

// emitter receives a value and the values of the labels.
type emitter func(value any, labels ...string)

func boolToFloat(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// boolValue returns a derive function for a metric that is 1 or 0.
func boolValue(of func(s metricsData) bool) func(metricsData, emitter) {
	return func(s metricsData, emit emitter) { emit(boolToFloat(of(s))) }
}

// value returns a derive function for a metric with one value and no labels.
func value[T float64 | uint64 | status.Histogram](of func(s metricsData) T) func(metricsData, emitter) {
	return func(s metricsData, emit emitter) {
		switch v := any(of(s)).(type) {
		case uint64:
			emit(float64(v))
		default:
			emit(v)
		}
	}
}

// isElector reports whether the daemon is the elector and ZooKeeper answers it. An elector that is cut off does not know that
// another daemon has replaced it, and would keep counting members that are gone.
func isElector(s metricsData) bool { return s.Elector && s.CheckReady() == nil }

// electorOnly restricts a metric to the elector. Other daemons do not know the values, and zeros would be wrong.
func electorOnly(derive func(metricsData, emitter)) func(metricsData, emitter) {
	return func(s metricsData, emit emitter) {
		if isElector(s) {
			derive(s, emit)
		}
	}
}

const gauge, counter, histogram = "gauge", "counter", "histogram"

var metrics = []metric{
	{"zkelectd_is_leader", gauge, nil, "1 if this daemon is the READY leader and its lease is valid.", boolValue(func(s metricsData) bool { return s.Leads() })},
	{"zkelectd_is_elector", gauge, nil, "1 if this daemon is the elector, and ZooKeeper answers it.", boolValue(isElector)},
	{"zkelectd_state", gauge, []string{"state"}, "1 for the state that this daemon is in, which is the label; the states are those in the answers of the probes.", func(s metricsData, emit emitter) { emit(1.0, s.State()) }},
	{"zkelectd_term", gauge, nil, "The term of the newest decision that this daemon has seen.", value(func(s metricsData) float64 { return float64(s.ElectedTerm) })},
	{"zkelectd_lease_remaining_seconds", gauge, nil, "The remaining time of the lease; 0 without a lease.", value(func(s metricsData) float64 { return time.Duration(s.LeaseRemaining).Seconds() })},
	{"zkelectd_lease_seconds", gauge, nil, "The full duration of a lease; 0 before there is a session.", value(func(s metricsData) float64 { return cluster.Lease(time.Duration(s.SessionTimeout)).Seconds() })},
	{"zkelectd_session_timeout_seconds", gauge, nil, "The negotiated session timeout; 0 before there is a session.", value(func(s metricsData) float64 { return time.Duration(s.SessionTimeout).Seconds() })},
	{"zkelectd_session_up", gauge, nil, "1 if the session is alive and connected to a server.", boolValue(func(s metricsData) bool { return s.Session && s.Connected && s.CheckLoop() == nil })},
	{"zkelectd_view_age_seconds", gauge, nil, "The time since the daemon's event loop last published its state.", value(func(s metricsData) float64 { return time.Duration(s.Age).Seconds() })},
	{"zkelectd_zookeeper_last_response_age_seconds", gauge, nil, "The time since this daemon sent the last read that ZooKeeper has answered.", value(func(s metricsData) float64 { return time.Duration(s.LastResponseAge).Seconds() })},
	{"zkelectd_healthy", gauge, nil, "1 if this host passes its own health probe, or has none.", boolValue(func(s metricsData) bool { return s.Unhealthy == "" })},
	{"zkelectd_child_up", gauge, nil, "1 if a process of the leader-only child exists.", boolValue(childUp)},
	{"zkelectd_child_unkillable", gauge, nil, "1 if part of the leader-only work cannot be killed: until it has ended, leadership is not released and the session stays open.", boolValue(func(s metricsData) bool { return s.Unkillable != "" })},
	{"zkelectd_child_restarts_total", counter, nil, "Restarts of the child in place, after it had exited by itself.", value(func(s metricsData) uint64 { return s.totals.Restarts })},
	{"zkelectd_policy_drift", gauge, nil, "1 if the policy in this daemon's configuration is not the one in force.", boolValue(func(s metricsData) bool { return s.Drift != "" })},
	{"zkelectd_config_last_reload_successful", gauge, nil, "0 if the last reload of the configuration was rejected, so that the previous one is still in use.", boolValue(func(s metricsData) bool { return !s.totals.ReloadFailed })},
	{"zkelectd_config_last_reload_success_timestamp_seconds", gauge, nil, "The time at which the daemon read the configuration in use.", value(func(s metricsData) float64 { return float64(s.totals.Reloaded.UnixMilli()) / 1000 })},
	{"zkelectd_sessions_total", counter, nil, "ZooKeeper sessions in which this daemon has registered.", value(func(s metricsData) uint64 { return s.totals.Sessions })},
	{"zkelectd_session_expirations_total", counter, nil, "Sessions that ended although the daemon was not stopping: expired, closed from outside, or abandoned.", value(func(s metricsData) uint64 { return s.totals.SessionsLost })},
	{"zkelectd_session_reconnects_total", counter, nil, "How often the daemon reconnected to ZooKeeper without losing its session.", value(func(s metricsData) uint64 { return s.totals.Reconnects })},
	{"zkelectd_zookeeper_request_duration_seconds", histogram, []string{"operation"}, "How long ZooKeeper took to answer: read is a read every few seconds, write are the writes of this daemon as the leader.", func(s metricsData, emit emitter) {
		emit(s.totals.Reads, "read")
		emit(s.totals.Writes, "write")
	}},
	{"zkelectd_members", gauge, []string{"site", "eligible"}, "The number of members that are eligible, and of those that are not. Elector only.", electorOnly(members)},
	{"zkelectd_excluded_members", gauge, []string{"site"}, "The number of members that are excluded because of strikes. Elector only.", electorOnly(excluded)},
	{"zkelectd_sites_omitted", gauge, nil, "The number of sites beyond the limit of 64, which have no series of their own: their members are counted together as the site /other. Elector only.", electorOnly(value(omitted))},
	{"zkelectd_no_eligible_members", gauge, nil, "1 if the group needs a leader and no member is eligible. Elector only.", electorOnly(boolValue(func(s metricsData) bool { return s.Note != "" }))},
	{"zkelectd_newer_records", gauge, nil, "1 if a newer version has written a record that this daemon does not understand: it neither elects nor takes over. Upgrade this host.", boolValue(func(s metricsData) bool { return s.Newer != "" })},
	{"zkelectd_preemption_blocked", gauge, nil, "1 if a better member than the leader is prevented from taking over by a pause, failback, damping or an operator request. Elector only.", electorOnly(boolValue(func(s metricsData) bool { return s.Blocked != "" }))},
	{"zkelectd_paused", gauge, []string{"mode"}, "1 if the group is paused in this mode: soft, or hard, in which not even a dead leader is replaced. Elector only.", electorOnly(paused)},
	{"zkelectd_transitions_total", counter, []string{"cause", "result"}, "Decisions that this daemon saw as the elector, by cause and result: the elected member became READY (ready) or not (failed).", transitions},
	{"zkelectd_transition_duration_seconds", histogram, nil, "The time from a decision to READY, as seen by the elector.", value(func(s metricsData) status.Histogram { return s.totals.ToReady })},
	{"zkelectd_leaderless_duration_seconds", histogram, nil, "How long the group had no READY leader before it got one, as seen by the elector.", value(func(s metricsData) status.Histogram { return s.totals.Leaderless })},
	{"zkelectd_group_info", gauge, []string{"group", "node", "site"}, "Always 1; the labels are the group's root, and this daemon's node and site.", func(s metricsData, emit emitter) { emit(1.0, s.Root, s.Node, s.Site) }},
	{"zkelectd_build_info", gauge, []string{"version", "goversion"}, "Always 1; the labels are the versions of zkelectd and Go.", func(s metricsData, emit emitter) { emit(1.0, s.version, runtime.Version()) }},
}

// childUp reports whether the child runs. If the loop is stuck, its last report is valid until the end of the lease, when the
// guard kills the child.
func childUp(s metricsData) bool { return s.Child && (s.CheckLoop() == nil || s.LeaseRemaining > 0) }

func members(s metricsData, emit emitter) {
	list, _ := sites(s)
	for _, at := range list {
		emit(float64(at.Eligible), at.label, "true")
		emit(float64(at.Ineligible), at.label, "false")
	}
}

func excluded(s metricsData, emit emitter) {
	list, _ := sites(s)
	for _, at := range list {
		emit(float64(at.Excluded), at.label)
	}
}

func paused(s metricsData, emit emitter) {
	emit(boolToFloat(s.Paused && !s.PausedHard), "soft")
	emit(boolToFloat(s.Paused && s.PausedHard), "hard")
}

func omitted(s metricsData) float64 {
	_, n := sites(s)
	return float64(n)
}

func transitions(s metricsData, emit emitter) {
	kinds := slices.SortedFunc(maps.Keys(s.totals.Transitions), func(a, b status.Transition) int {
		return cmp.Or(strings.Compare(a.Cause, b.Cause), strings.Compare(a.Result, b.Result))
	})
	for _, k := range kinds {
		emit(float64(s.totals.Transitions[k]), k.Cause, k.Result)
	}
}

// collector implements prometheus.Collector.
type collector struct {
	opt   Options
	descs []*prometheus.Desc // one for each of metrics
}

func newCollector(opt Options) *collector {
	c := &collector{opt: opt}
	for _, m := range metrics {
		c.descs = append(c.descs, prometheus.NewDesc(m.name, m.help, m.labels, nil))
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	s := metricsData{Daemon: c.opt.View(), version: c.opt.Version}
	if c.opt.Totals != nil {
		s.totals = c.opt.Totals()
	}
	for i, m := range metrics {
		m.derive(s, func(v any, labels ...string) {
			for j := range labels {
				labels[j] = label(labels[j])
			}
			out <- c.measure(i, v, labels)
		})
	}
}

func (c *collector) measure(i int, v any, labels []string) prometheus.Metric {
	switch v := v.(type) {
	case status.Histogram:
		count, sum, buckets := v.Cumulative()
		return prometheus.MustNewConstHistogram(c.descs[i], count, sum, buckets, labels...)
	case float64:
		kind := prometheus.GaugeValue
		if metrics[i].kind == counter {
			kind = prometheus.CounterValue
		}
		return prometheus.MustNewConstMetric(c.descs[i], kind, v, labels...)
	}
	panic("httpapi: " + metrics[i].name + " has a value of an unknown type")
}
