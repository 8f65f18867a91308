package httpapi

import "github.com/prometheus/client_golang/prometheus"

// collector derives the metrics from the view when they are scraped, so that they can't disagree with it.
type collector struct{ opt Options }

var (
	isLeader  = prometheus.NewDesc("zkelectd_is_leader", "1 if this daemon is the READY leader and its lease is valid.", nil, nil)
	isElector = prometheus.NewDesc("zkelectd_is_elector", "1 if this daemon is the elector.", nil, nil)
	term      = prometheus.NewDesc("zkelectd_term", "The term of the newest decision that this daemon has seen.", nil, nil)
	lease     = prometheus.NewDesc("zkelectd_lease_remaining_seconds", "What is left of the lease; 0 without one.", nil, nil)
	phase     = prometheus.NewDesc("zkelectd_phase", "1 for the phase that this daemon is in.", []string{"phase"}, nil)
	drift     = prometheus.NewDesc("zkelectd_policy_drift", "1 if the policy in this daemon's configuration is not the one in force.", nil, nil)
	holding   = prometheus.NewDesc("zkelectd_better_member_held", "1 if this daemon, as the elector, does not let a better member take over.", nil, nil)
	build     = prometheus.NewDesc("zkelectd_build_info", "1, with the version.", []string{"version"}, nil)
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, out) }

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	v := c.opt.View()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	flag := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	gauge(isLeader, flag(v.Leads()))
	gauge(isElector, flag(v.Elector))
	gauge(term, float64(v.ElectedTerm))
	gauge(lease, v.LeaseRemaining.Seconds())
	gauge(phase, 1, v.Phase)
	gauge(drift, flag(v.Drift != ""))
	gauge(holding, flag(v.Elector && v.Holding != ""))
	gauge(build, 1, c.opt.Version)
}
