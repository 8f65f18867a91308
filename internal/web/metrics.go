package web

import (
	"cmp"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"zkelectd/internal/operator/status"
)

// metric is a metric family and the function that derives its values, for the whole daemon, or for each group. Metrics
// of groups have the label group, before the others. docs/metrics.md is generated from these.
type metric struct {
	name     string
	kind     string // gauge, counter or histogram
	labels   []string
	help     string
	ofHost   func(hostData, emitter)
	ofGroups func(groupData, emitter)
}

// labelGroup is the label of all metrics of groups. Its values come from the configuration, so they are bounded.
const labelGroup = "group"

func (m metric) allLabels() []string {
	if m.ofGroups == nil {
		return m.labels
	}
	return append([]string{labelGroup}, m.labels...)
}

// hostData is the data that the metrics of the daemon are derived from at each scrape, so that they agree with the
// other responses.
type hostData struct {
	views   status.Host
	groups  []groupData
	totals  status.Totals
	node    string
	version string
}

// groupData is that for a group.
type groupData struct {
	status.Daemon
	totals   status.Totals
	maxSites int
}

// emitter receives a value and the values of the labels.
type emitter func(value any, labels ...string)

func boolToFloat(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// boolean returns a derive function for a metric that is 1 or 0.
func boolean[D any](of func(D) bool) func(D, emitter) {
	return func(d D, emit emitter) { emit(boolToFloat(of(d))) }
}

// ifTrue returns a derive function for a metric that is 1 or does not exist. That keeps the number of series per group
// small.
func ifTrue[D any](of func(D) bool) func(D, emitter) {
	return func(d D, emit emitter) {
		if of(d) {
			emit(1.0)
		}
	}
}

// value returns a derive function for a metric with one value and no further labels.
func value[D any, T float64 | uint64](of func(D) T) func(D, emitter) {
	return func(d D, emit emitter) { emit(float64(of(d))) }
}

// isElector reports whether the daemon is the elector and ZooKeeper answers it. An elector that is cut off does not
// know that another daemon has replaced it, and would keep counting members that are gone.
func isElector(g groupData) bool { return g.Elector && g.CheckReady() == nil }

// electorOnly restricts a metric to the elector. Other daemons do not know the values, and zeros would be wrong.
func electorOnly(derive func(groupData, emitter)) func(groupData, emitter) {
	return func(g groupData, emit emitter) {
		if isElector(g) {
			derive(g, emit)
		}
	}
}

// maxCounted is how many groups of a daemon have series of their own for what elections took: about 60 for each group.
const maxCounted = 64

// allGroups is the label of the groups that are counted together. The name of a group does not begin with a slash.
const allGroups = "/all"

// counted returns a derive function for counters of groups, which may have many series: with too many groups those of
// the whole daemon. The first label is the group.
func counted(of func(status.Totals, emitter)) func(hostData, emitter) {
	return func(h hostData, emit emitter) {
		in := func(group string) emitter {
			return func(v any, labels ...string) { emit(v, append([]string{group}, labels...)...) }
		}
		if len(h.groups) > maxCounted {
			of(h.totals, in(allGroups))
			return
		}
		for _, g := range h.groups {
			of(g.totals, in(g.Group))
		}
	}
}

const gauge, counter, histogram = "gauge", "counter", "histogram"

// metrics lists all metrics. A daemon that neither leads nor elects a group exports eight series for it, two more with
// failsafe mode, and those of [counted].
var metrics = slices.Concat(groupMetrics, hostMetrics)

var groupMetrics = []metric{
	{"zkelectd_is_leader", gauge, nil, "1 if this daemon is the READY leader and its lease is valid.", nil,
		boolean(func(g groupData) bool { return g.Leads() })},
	{"zkelectd_is_elector", gauge, nil, "1 if this daemon is the elector, and ZooKeeper answers it.", nil,
		boolean(isElector)},
	{"zkelectd_state", gauge, []string{"state"}, "1 for the state that this daemon is in, as in the answers " +
		"of the probes.", nil, func(g groupData, emit emitter) { emit(1.0, g.State()) }},
	{"zkelectd_term", gauge, nil, "The term of the newest decision that this daemon has seen.", nil,
		value(func(g groupData) float64 { return float64(g.ElectedTerm) })},
	{"zkelectd_child_up", gauge, nil, "1 if a process of the leader-only child exists.", nil, boolean(childUp)},
	{"zkelectd_child_restarts_total", counter, nil, "Restarts of the child in place, after it had exited by itself.",
		nil, value(func(g groupData) uint64 { return g.totals.Restarts })},
	{"zkelectd_failed_transitions_total", counter, nil, "Decisions that this daemon saw as the elector, and after " +
		"which the elected member did not become READY.", nil, value(failedTransitions)},
	{"zkelectd_group_info", gauge, []string{"root", "node", "site"}, "Always 1; the labels are the group's root, and " +
		"this daemon's node and site.", nil, func(g groupData, emit emitter) { emit(1.0, g.Root, g.Node, g.Site) }},
	{"zkelectd_lease_remaining_seconds", gauge, nil, "The remaining time of the lease. Only while this daemon " +
		"holds leadership.", nil, func(g groupData, emit emitter) {
		if g.Term != 0 {
			emit(time.Duration(g.LeaseRemaining).Seconds())
		}
	}},
	{"zkelectd_application_leases", gauge, nil, "Application leases that are out: a release waits for them. " +
		"Absent otherwise.", nil, func(g groupData, emit emitter) {
		if g.ApplicationLeases > 0 {
			emit(float64(g.ApplicationLeases))
		}
	}},
	{"zkelectd_heir", gauge, nil, "1 if this daemon is elected next if the leader is lost, and its data is fresh. " +
		"Absent otherwise.", nil, ifTrue(func(g groupData) bool { return g.CheckHeir() == nil })},
	{"zkelectd_child_unkillable", gauge, nil, "1 if part of the leader-only work cannot be killed. Absent otherwise.",
		nil, ifTrue(func(g groupData) bool { return g.Unkillable != "" })},
	{"zkelectd_watchdog_device", gauge, []string{"state"}, "Always 1, with the state of the watchdog device: ready, " +
		"armed (work runs) or unusable. Absent if none is configured.", nil, func(g groupData, emit emitter) {
		if g.WatchdogDevice != nil {
			emit(1.0, g.WatchdogDevice.State)
		}
	}},
	{"zkelectd_standby", gauge, []string{"state"}, "Always 1, with the state of this host's promotable work: warm " +
		"(ready to be promoted), warming or cold (it does not run). Absent without child.promote.", nil,
		func(g groupData, emit emitter) {
			if g.Standby != nil {
				emit(1.0, g.Standby.State)
			}
		}},
	{"zkelectd_failsafe_active", gauge, nil, "1 while this daemon leads without ZooKeeper, by the promises of the " +
		"other members. Only where failsafe mode is enabled.", nil, func(g groupData, emit emitter) {
		if g.Failsafe != nil && g.Failsafe.Enabled {
			emit(boolToFloat(g.Failsafe.Active))
		}
	}},
	{"zkelectd_failsafe_ready", gauge, nil, "1 if all other members would promise if this daemon led now. Only where " +
		"failsafe mode is enabled.", nil, func(g groupData, emit emitter) {
		if g.Failsafe != nil && g.Failsafe.Enabled {
			emit(boolToFloat(g.Failsafe.Ready))
		}
	}},
	{"zkelectd_failsafe_member_unready", gauge, []string{"member"}, "1 for each other member that would not promise, " +
		"at most 16. Absent otherwise.", nil, unready},
	{"zkelectd_newer_records", gauge, nil, "1 if a newer version has written a record that this daemon does not " +
		"understand. Absent otherwise.", nil, ifTrue(func(g groupData) bool { return g.Newer != "" })},
	{"zkelectd_policy_drift", gauge, nil, "1 if the policy in this daemon's configuration is not the one in force. " +
		"Absent otherwise.", nil, ifTrue(func(g groupData) bool { return g.Drift != "" })},
	{"zkelectd_slots_drift", gauge, nil, "1 if slots.count or slots.per_node in this daemon's configuration is not " +
		"the one in force. Absent otherwise.", nil, ifTrue(func(g groupData) bool { return g.SlotsDrift != "" })},
	{"zkelectd_members", gauge, []string{"site", "eligible"}, "Members that are eligible, and of those that are not. " +
		"Of many sites, small ones are counted together as the site /other. Elector only.", nil, electorOnly(members)},
	{"zkelectd_members_expected", gauge, nil, "Members that are registered, lost or stopped. Elector only.", nil,
		electorOnly(value(func(g groupData) float64 { return float64(g.Condition.Expected) }))},
	{"zkelectd_members_lost", gauge, nil, "Members that are lost. Elector only.", nil,
		electorOnly(value(func(g groupData) float64 { return float64(len(g.Condition.Lost)) }))},
	{"zkelectd_excluded_members", gauge, []string{"site"},
		"Members that are excluded because of strikes. Elector only.", nil, electorOnly(excluded)},
	{"zkelectd_severity", gauge, nil, "What the users of the work suffer: 0 nothing, 1 a warning, 2 critical, see " +
		"docs/operations.md. Elector only.", nil,
		electorOnly(value(func(g groupData) float64 { return float64(g.SeverityAt(time.Now())) }))},
	{"zkelectd_no_eligible_members", gauge, nil, "1 if the group needs a leader and no member is " +
		"eligible. Elector only.", nil,
		electorOnly(boolean(func(g groupData) bool { return g.Note != "" && g.EligibleMembers() == 0 }))},
	{"zkelectd_approval_awaited", gauge, nil, "1 if an election waits until a person approves it, see " +
		"policy.confirm. Absent otherwise. Elector only.", nil,
		electorOnly(ifTrue(func(g groupData) bool { return g.AwaitsApproval }))},
	{"zkelectd_preemption_blocked", gauge, nil, "1 if a pause, a delayed failback, damping or an operator request " +
		"keeps a better member from leading. Failback manual does not count. Elector only.", nil,
		electorOnly(boolean(func(g groupData) bool { return g.Blocked != "" }))},
	{"zkelectd_paused", gauge, []string{"mode"}, "1 if the group is paused in this mode: soft, or hard. Elector only.",
		nil, electorOnly(paused)},
}

var hostMetrics = []metric{
	{"zkelectd_groups", gauge, []string{"state"}, "This daemon's groups in which it is in this state.", groupStates, nil},
	{"zkelectd_lease_seconds", gauge, nil, "The full duration of a lease; 0 before there is a session.",
		value(func(h hostData) float64 { return h.lease().Seconds() }), nil},
	{"zkelectd_session_timeout_seconds", gauge, nil, "The negotiated session timeout; 0 before there is a session.",
		value(func(h hostData) float64 { return h.sessionTimeout().Seconds() }), nil},
	{"zkelectd_session_up", gauge, nil, "1 if the session is alive and connected to a server.", boolean(sessionUp), nil},
	{"zkelectd_view_age_seconds", gauge, nil, "The time since the daemon's event loop last updated its state; with " +
		"several groups, that of the loop that did so least recently.",
		value(func(h hostData) float64 { return time.Duration(h.views.Age()).Seconds() }), nil},
	{"zkelectd_zookeeper_last_response_age_seconds", gauge, nil, "The time since this daemon sent the last read that " +
		"ZooKeeper has answered.", value(lastResponseAge), nil},
	{"zkelectd_healthy", gauge, nil, "1 if this host passes its own health probe, or has none.", boolean(healthy), nil},
	{"zkelectd_config_last_reload_successful", gauge, nil, "0 if the last reload was refused, so that the " +
		"configuration before is still in use.", boolean(func(h hostData) bool { return !h.totals.ReloadFailed }), nil},
	{"zkelectd_config_pending_settings", gauge, nil, "Settings that differ in the configuration files and " +
		"need a restart.", value(func(h hostData) float64 { return float64(h.totals.Pending) }), nil},
	{"zkelectd_config_last_reload_success_timestamp_seconds", gauge, nil,
		"The time at which the daemon read the configuration in use.",
		value(func(h hostData) float64 { return float64(h.totals.Reloaded.UnixMilli()) / 1000 }), nil},
	{"zkelectd_certificate_expiry_timestamp_seconds", gauge, []string{"file"},
		"When the certificate of this host for ZooKeeper expires. Absent without one.", func(h hostData, emit emitter) {
			if h.totals.Certificate != "" {
				emit(float64(h.totals.CertificateEnd.Unix()), h.totals.Certificate)
			}
		}, nil},
	{"zkelectd_certificate_expiring", gauge, []string{"file"}, "1 if that certificate has expired, or does so within " +
		"14 days or a tenth of its life. Absent otherwise.", func(h hostData, emit emitter) {
		if h.totals.Certificate != "" && !time.Now().Before(h.totals.RenewBy) {
			emit(1.0, h.totals.Certificate)
		}
	}, nil},
	{"zkelectd_sessions_total", counter, nil, "ZooKeeper sessions in which this daemon has registered.",
		value(func(h hostData) uint64 { return h.totals.Sessions }), nil},
	{"zkelectd_session_expirations_total", counter, nil, "Sessions that ended although the daemon was not stopping: " +
		"expired, closed from outside, or abandoned.", value(func(h hostData) uint64 { return h.totals.SessionsLost }), nil},
	{"zkelectd_session_reconnects_total", counter, nil, "How often the daemon reconnected to ZooKeeper without " +
		"losing its session.", value(func(h hostData) uint64 { return h.totals.Reconnects }), nil},
	{"zkelectd_hook_failures_total", counter, nil, "Runs of the hooks on_change, on_leader_change and on_proposal " +
		"that have failed, or were killed after hooks.timeout. The log names the group.",
		value(func(h hostData) uint64 { return h.totals.HookFailures }), nil},
	{"zkelectd_fencing_total", counter, []string{"result"}, "Nodes of lost leaders that this daemon has tried to " +
		"fence: success, or failure (it is not certain that the node is off).", func(h hostData, emit emitter) {
		emit(float64(h.totals.Fenced.Succeeded), "success")
		emit(float64(h.totals.Fenced.Failed), "failure")
	}, nil},
	{"zkelectd_fencing_unavailable", gauge, nil, "Nodes that this daemon could not fence, as their monitor " +
		"has found last.", value(func(h hostData) float64 { return float64(h.totals.Unfenceable) }), nil},
	{"zkelectd_failsafe_rounds_total", counter, nil, "Rounds in which this daemon, as a leader without ZooKeeper, " +
		"has asked all members for promises.", value(func(h hostData) uint64 { return h.totals.Failsafe.Rounds }), nil},
	{"zkelectd_failsafe_extensions_total", counter, nil, "Rounds in which all members have promised in time, so that " +
		"the lease was extended.", value(func(h hostData) uint64 { return h.totals.Failsafe.Extended }), nil},
	{"zkelectd_failsafe_replies_total", counter, []string{"result"}, "What the members that were asked in rounds " +
		"have done: promised, refused, or unreachable.", func(h hostData, emit emitter) {
		emit(float64(h.totals.Failsafe.Promised), "promised")
		emit(float64(h.totals.Failsafe.Refused), "refused")
		emit(float64(h.totals.Failsafe.Unreachable), "unreachable")
	}, nil},
	{"zkelectd_zookeeper_request_duration_seconds", histogram, []string{"operation"},
		"How long ZooKeeper took to answer: read is a read every few seconds, write are the writes of this daemon " +
			"as the leader.", func(h hostData, emit emitter) {
			emit(h.totals.Reads, "read")
			emit(h.totals.Writes, "write")
		}, nil},
	{"zkelectd_transitions_total", counter, []string{labelGroup, "cause", "result"},
		"Decisions that this daemon saw as the elector, by cause and result: the elected member became READY (ready) " +
			"or not (failed). With more than 64 groups, those of all together, as the group /all; so are " +
			"the two below.", counted(transitions), nil},
	{"zkelectd_transition_duration_seconds", histogram, []string{labelGroup},
		"The time from a decision to READY, as seen by the elector.",
		counted(func(t status.Totals, emit emitter) { emit(t.ToReady) }), nil},
	{"zkelectd_leaderless_duration_seconds", histogram, []string{labelGroup},
		"How long no leader's work ran before a leader was READY, from the end of the last one's work, as in history.",
		counted(func(t status.Totals, emit emitter) { emit(t.Leaderless) }), nil},
	{"zkelectd_node_info", gauge, []string{"node", "site"}, "Always 1; the labels are this daemon's node and site.",
		func(h hostData, emit emitter) { emit(1.0, h.node, h.site()) }, nil},
	{"zkelectd_build_info", gauge, []string{"node", "version", "goversion"},
		"Always 1; the labels are this daemon's node, and the versions of zkelectd and Go.",
		func(h hostData, emit emitter) { emit(1.0, h.node, h.version, runtime.Version()) }, nil},
}

// childUp reports whether the child runs. If the loop is stuck, its last report is valid until the end of the lease,
// when the guard kills the child.
func childUp(g groupData) bool { return g.Child && (g.CheckLoop() == nil || g.LeaseRemaining > 0) }

func failedTransitions(g groupData) (n uint64) {
	for k, v := range g.totals.Transitions {
		if k.Result == status.ResultFailed {
			n += v
		}
	}
	return n
}

// maxUnready bounds the series of the members that would not promise: anyone who can register members sets their ids.
const maxUnready = 16

func unready(g groupData, emit emitter) {
	if g.Failsafe == nil || !g.Failsafe.Enabled {
		return
	}
	labels := make(map[string]bool) // several members may have the same label
	for _, member := range slices.Sorted(maps.Keys(g.Failsafe.Unready)) {
		if l := label(member); !labels[l] && len(labels) < maxUnready {
			labels[l] = true
			emit(1.0, l)
		}
	}
}

func members(g groupData, emit emitter) {
	for _, at := range sites(g) {
		emit(float64(at.Eligible), at.label, "true")
		emit(float64(at.Ineligible), at.label, "false")
	}
}

func excluded(g groupData, emit emitter) {
	for _, at := range sites(g) {
		emit(float64(at.Excluded), at.label)
	}
}

func paused(g groupData, emit emitter) {
	emit(boolToFloat(g.Paused && !g.PausedHard), "soft")
	emit(boolToFloat(g.Paused && g.PausedHard), "hard")
}

func groupStates(h hostData, emit emitter) {
	count := make(map[string]int)
	for _, v := range h.views {
		count[v.State()]++
	}
	for _, state := range slices.Sorted(maps.Keys(count)) {
		emit(float64(count[state]), state)
	}
}

func (h hostData) sessionTimeout() (longest time.Duration) {
	for _, v := range h.views {
		longest = max(longest, time.Duration(v.SessionTimeout))
	}
	return longest
}

func (h hostData) lease() (longest time.Duration) {
	for _, v := range h.views {
		longest = max(longest, time.Duration(v.Lease))
	}
	return longest
}

func sessionUp(h hostData) bool {
	return slices.ContainsFunc(h.views, func(v status.Daemon) bool {
		return v.Session && v.Connected && v.CheckLoop() == nil
	})
}

func healthy(h hostData) bool {
	return !slices.ContainsFunc(h.views, func(v status.Daemon) bool { return v.Unhealthy != "" })
}

// lastResponseAge is that of the group whose read was answered last: all groups share a session.
func lastResponseAge(h hostData) (seconds float64) {
	first := true
	for _, v := range h.views {
		if age := time.Duration(v.LastResponseAge).Seconds(); v.RespondedAt > 0 && (first || age < seconds) {
			seconds, first = age, false
		}
	}
	return seconds
}

func (h hostData) site() string {
	if len(h.views) == 0 {
		return ""
	}
	return h.views[0].Site
}

func transitions(t status.Totals, emit emitter) {
	kinds := slices.SortedFunc(maps.Keys(t.Transitions), func(a, b status.Transition) int {
		return cmp.Or(strings.Compare(a.Cause, b.Cause), strings.Compare(a.Result, b.Result))
	})
	for _, k := range kinds {
		emit(float64(t.Transitions[k]), k.Cause, k.Result)
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
		c.descs = append(c.descs, prometheus.NewDesc(m.name, m.help, m.allLabels(), nil))
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
	groups := c.opt.Groups()
	host := hostData{totals: c.opt.Totals(), node: c.opt.Node, version: c.opt.Version}
	for _, g := range groups {
		v := g.view()
		host.views = append(host.views, v)
		host.groups = append(host.groups, groupData{v, g.Totals(), maxSites(len(groups))})
	}
	for i, m := range metrics {
		if m.ofHost != nil {
			m.ofHost(host, c.emitter(out, i))
			continue
		}
		for _, g := range host.groups {
			m.ofGroups(g, c.emitter(out, i, g.Group))
		}
	}
}

// emitter returns a function that sends the values of a metric to out. first are the values of its first labels.
func (c *collector) emitter(out chan<- prometheus.Metric, i int, first ...string) emitter {
	return func(v any, labels ...string) {
		all := slices.Concat(first, labels)
		for j := range all {
			all[j] = label(all[j])
		}
		out <- c.measure(i, v, all)
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
	panic("web: " + metrics[i].name + " has a value of an unknown type")
}
