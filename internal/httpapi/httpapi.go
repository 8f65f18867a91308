// Package httpapi shows one daemon's published View over HTTP: to load balancers and probes, to people, to Prometheus.
// It fails closed: what is stale or unknown is no.
package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"zkelectd/internal/status"
)

// Options are what the handler shows.
type Options struct {
	// View returns the daemon's view as of now.
	View    func() status.Daemon
	Version string
}

// New returns the handler.
func New(opt Options) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(&collector{opt})
	mux := http.NewServeMux()
	answer := func(path string, yes func(status.Daemon) bool) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			v := opt.View()
			code := http.StatusServiceUnavailable
			if yes(v) {
				code = http.StatusOK
			}
			respond(w, code, v)
		})
	}
	answer("/leader", status.Daemon.Leads)
	answer("/replica", func(v status.Daemon) bool { return v.Phase == "standby" && v.Incarnation != "" })
	answer("/health", func(v status.Daemon) bool { return v.Incarnation != "" && v.Phase != "ended" })
	answer("/v1/status", func(status.Daemon) bool { return true })
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return http.MaxBytesHandler(mux, 1<<10) // nothing that is read needs a body
}

func respond(w http.ResponseWriter, code int, v status.Daemon) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(v) // a client that has gone is no concern
}

// Serve listens on addr until ctx is over.
func Serve(ctx context.Context, addr string, handler http.Handler) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("http.listen %s: %w; choose another address (--http)", addr, err)
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

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
