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
	derive func(s sight, emit emitter)
}

// sight is the data that the metrics are derived from at each scrape, so that they agree with the other responses.
type sight struct {
	status.Daemon
	totals  status.Totals
	version string
}

// emitter receives a value and the values of the labels.
type emitter func(value any, labels ...string)

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// oneIf returns a derive function for a metric that is 1 or 0.
func oneIf(of func(s sight) bool) func(sight, emitter) {
	return func(s sight, emit emitter) { emit(truth(of(s))) }
}

func value[T float64 | uint64 | status.Histogram](of func(s sight) T) func(sight, emitter) {
	return func(s sight, emit emitter) {
		switch v := any(of(s)).(type) {
		case uint64:
			emit(float64(v))
		default:
			emit(v)
		}
	}
}

// elects tells that the daemon is the elector as far as anybody knows now. One that is cut off learns last that there is
// another, and would go on counting members that are gone.
func elects(s sight) bool { return s.Elector && s.CheckReady() == nil }

// elector is a metric that only the elector has: the others don't know, and zeros would lie.
func elector(derive func(sight, emitter)) func(sight, emitter) {
	return func(s sight, emit emitter) {
		if elects(s) {
			derive(s, emit)
		}
	}
}

const gauge, counter, histogram = "gauge", "counter", "histogram"

var metrics = []metric{
	{"zkelectd_is_leader", gauge, nil, "1 if this daemon is the READY leader and its lease is valid.", oneIf(func(s sight) bool { return s.Leads() })},
	{"zkelectd_is_elector", gauge, nil, "1 if this daemon is the elector, and ZooKeeper answers it.", oneIf(elects)},
	{"zkelectd_state", gauge, []string{"state"}, "1 for the state that this daemon is in, as in the answers of the probes.", func(s sight, emit emitter) { emit(1.0, s.State()) }},
	{"zkelectd_term", gauge, nil, "The term of the newest decision that this daemon has seen.", value(func(s sight) float64 { return float64(s.ElectedTerm) })},
	{"zkelectd_lease_remaining_seconds", gauge, nil, "The remaining time of the lease; 0 without one.", value(func(s sight) float64 { return time.Duration(s.LeaseRemaining).Seconds() })},
	{"zkelectd_lease_seconds", gauge, nil, "How long a lease is when it has just been renewed; 0 before there is a session.", value(func(s sight) float64 { return cluster.Lease(time.Duration(s.SessionTimeout)).Seconds() })},
	{"zkelectd_session_timeout_seconds", gauge, nil, "The session timeout as negotiated; 0 before there is one.", value(func(s sight) float64 { return time.Duration(s.SessionTimeout).Seconds() })},
	{"zkelectd_session_up", gauge, nil, "1 if the session lives and a server is connected.", oneIf(func(s sight) bool { return s.Session && s.Connected && s.CheckLoop() == nil })},
	{"zkelectd_view_age_seconds", gauge, nil, "The time since the daemon's loop last published its state.", value(func(s sight) float64 { return time.Duration(s.Age).Seconds() })},
	{"zkelectd_zookeeper_last_response_age_seconds", gauge, nil, "The time since the start of the last read that ZooKeeper answered.", value(func(s sight) float64 { return time.Duration(s.LastResponseAge).Seconds() })},
	{"zkelectd_healthy", gauge, nil, "1 if this host passes its own health probe, or has none.", oneIf(func(s sight) bool { return s.Unhealthy == "" })},
	{"zkelectd_child_up", gauge, nil, "1 if a process of the leader-only child is there.", oneIf(child)},
	{"zkelectd_child_unkillable", gauge, nil, "1 if something of the leader-only work cannot be killed: until it has ended nothing is released, and the session stays open.", oneIf(func(s sight) bool { return s.Unkillable != "" })},
	{"zkelectd_child_restarts_total", counter, nil, "Children that had exited by themselves and were started again in place.", value(func(s sight) uint64 { return s.totals.Restarts })},
	{"zkelectd_policy_drift", gauge, nil, "1 if the policy in this daemon's configuration is not the one in force.", oneIf(func(s sight) bool { return s.Drift != "" })},
	{"zkelectd_config_last_reload_successful", gauge, nil, "0 if the configuration was read again and refused, so that an older one runs.", oneIf(func(s sight) bool { return !s.totals.ReloadFailed })},
	{"zkelectd_config_last_reload_success_timestamp_seconds", gauge, nil, "When the running configuration was read.", value(func(s sight) float64 { return float64(s.totals.Reloaded.UnixMilli()) / 1000 })},
	{"zkelectd_sessions_total", counter, nil, "Sessions of ZooKeeper in which this daemon has registered.", value(func(s sight) uint64 { return s.totals.Sessions })},
	{"zkelectd_session_expirations_total", counter, nil, "Sessions that ended although nobody had asked the daemon to stop: expired, closed from elsewhere, or given up.", value(func(s sight) uint64 { return s.totals.SessionsLost })},
	{"zkelectd_session_reconnects_total", counter, nil, "How often a session went on with another connection.", value(func(s sight) uint64 { return s.totals.Reconnects })},
	{"zkelectd_zookeeper_request_duration_seconds", histogram, []string{"operation"}, "How long ZooKeeper took to answer: a read every few seconds, and the writes of this daemon's own leadership.", func(s sight, emit emitter) {
		emit(s.totals.Reads, "read")
		emit(s.totals.Writes, "write")
	}},
	{"zkelectd_members", gauge, []string{"site", "eligible"}, "Members of the group that policy lets lead, and those that it does not. Elector only.", elector(members)},
	{"zkelectd_excluded_members", gauge, []string{"site"}, "Members that may not lead because of strikes. Elector only.", elector(excluded)},
	{"zkelectd_sites_omitted", gauge, nil, "Sites without series of their own, as there are more than 64: their members are counted together as site /other. Elector only.", elector(value(omitted))},
	{"zkelectd_no_eligible_members", gauge, nil, "1 if no member is eligible, although there should be a leader. Elector only.", elector(oneIf(func(s sight) bool { return s.Note != "" }))},
	{"zkelectd_newer_records", gauge, nil, "1 if a newer version has written a record that this daemon does not know: it neither elects nor takes over. Upgrade this host.", oneIf(func(s sight) bool { return s.Newer != "" })},
	{"zkelectd_preemption_blocked", gauge, nil, "1 if a better member than the leader is kept from taking over, by a pause, failback, damping or a request. Elector only.", elector(oneIf(func(s sight) bool { return s.Holding != "" }))},
	{"zkelectd_paused", gauge, []string{"mode"}, "1 if the group is paused in this mode: soft, or hard, in which not even a dead leader is replaced. Elector only.", elector(paused)},
	{"zkelectd_transitions_total", counter, []string{"cause", "result"}, "Decisions seen as the elector, by cause, and whether the elected became READY (ready) or not (failed).", transitions},
	{"zkelectd_transition_duration_seconds", histogram, nil, "From a decision to READY, as seen by the elector.", value(func(s sight) status.Histogram { return s.totals.ToReady })},
	{"zkelectd_leaderless_duration_seconds", histogram, nil, "How long the group had no READY leader before it got one, as seen by the elector.", value(func(s sight) status.Histogram { return s.totals.Leaderless })},
	{"zkelectd_group_info", gauge, []string{"group", "node", "site"}, "1, with the group's root, and this daemon's node and site.", func(s sight, emit emitter) { emit(1.0, s.Root, s.Node, s.Site) }},
	{"zkelectd_build_info", gauge, []string{"version", "goversion"}, "1, with the version.", func(s sight, emit emitter) { emit(1.0, s.version, runtime.Version()) }},
}

// child reports whether the child runs. If the loop is stuck, its last report is valid until the end of the lease, when the guard
// kills the child.
func child(s sight) bool { return s.Child && (s.CheckLoop() == nil || s.LeaseRemaining > 0) }

func members(s sight, emit emitter) {
	list, _ := sites(s)
	for _, at := range list {
		emit(float64(at.Eligible), at.label, "true")
		emit(float64(at.Ineligible), at.label, "false")
	}
}

func excluded(s sight, emit emitter) {
	list, _ := sites(s)
	for _, at := range list {
		emit(float64(at.Excluded), at.label)
	}
}

func paused(s sight, emit emitter) {
	emit(truth(s.Paused && !s.PausedHard), "soft")
	emit(truth(s.Paused && s.PausedHard), "hard")
}

func omitted(s sight) float64 {
	_, n := sites(s)
	return float64(n)
}

func transitions(s sight, emit emitter) {
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
	s := sight{Daemon: c.opt.View(), version: c.opt.Version}
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
