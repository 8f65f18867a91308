// Package httpapi serves one daemon's published view over HTTP to load balancers, probes, people and Prometheus, and
// accepts operator requests from authorized clients. It fails closed: if information is stale or unknown, the answer is no.
// HTTP clients cannot delay elections.
package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"zkelectd/internal/cluster"
	"zkelectd/internal/page"
	"zkelectd/internal/request"
	"zkelectd/internal/status"
	"zkelectd/internal/whatif"
)

// Options are the sources of the data that the handler serves.
type Options struct {
	// View returns the daemon's current view.
	View func() status.Daemon
	// Totals returns the daemon's counters; nil for none.
	Totals func() status.Totals
	// Feed has the events for /v1/events; nil for none.
	Feed *status.Feed
	// Group, History and Explain return information about the whole group. They limit their own duration. Nil means that the
	// information is not available.
	Group   func(context.Context) (status.Group, error)
	History func(context.Context) ([]cluster.PastTerm, error)
	Explain func(context.Context) (whatif.Explanation, error)
	// Submit submits an operator request; nil if that is not possible. Its errors are those of host.Host.Submit.
	Submit func(context.Context, request.Request) (request.Plan, error)
	// Authenticator determines who may submit operator requests. If it is nil, only users of the unix socket may.
	Authenticator *Authenticator
	// Hosts are the names that requests may have in their Host header; nil for any.
	Hosts   *Hosts
	Version string
	// Registry is where the metrics are registered; nil for a new registry.
	Registry *prometheus.Registry
}

// maxScrapes limits concurrent requests for /metrics.
const maxScrapes = 4

// readMethods and writeMethods are the methods that a route accepts.
var (
	readMethods  = []string{http.MethodGet, http.MethodHead, http.MethodOptions}
	writeMethods = []string{http.MethodPost, http.MethodOptions}
)

// api serves the requests.
type api struct {
	opt          Options
	takesBody    map[string]bool // the paths of operator requests
	requestQuota *quota          // requests other than probes
	streamQuota  *quota          // event streams
	groupQuota   *quota          // requests about the group
	submissions  chan struct{}   // one element for each operator request that is being submitted
	origins      *http.CrossOriginProtection
	heartbeat    time.Duration
}

func newAPI(opt Options) *api {
	opt.Group, opt.History, opt.Explain = orUnavailable(opt.Group), orUnavailable(opt.History), orUnavailable(opt.Explain)
	if opt.Authenticator == nil {
		opt.Authenticator = NewAuthenticator(WebConfig{}, slog.New(slog.DiscardHandler))
	}
	return &api{
		opt: opt, takesBody: make(map[string]bool), requestQuota: newQuota(maxRequests, maxClientRequests),
		streamQuota: newQuota(maxStreams, maxClientStreams), groupQuota: newQuota(maxGroupReads, maxClientGroupReads),
		submissions: make(chan struct{}, maxSubmissions), origins: http.NewCrossOriginProtection(), heartbeat: heartbeatInterval,
	}
}

// route is a path with the methods that it accepts and its handler.
type route struct {
	path    string
	methods []string
	serve   http.HandlerFunc
}

func (a *api) routes() []route {
	registry := a.opt.Registry
	if registry == nil {
		registry = prometheus.NewRegistry()
	}
	registry.MustRegister(newCollector(a.opt))
	return append(append(a.probeRoutes(), a.requestRoutes()...),
		route{"/v1/status", readMethods, a.limitGroupReads(a.status)},
		route{"/v1/history", readMethods, a.limitGroupReads(a.history)},
		route{"/v1/explain", readMethods, a.limitGroupReads(a.explain)},
		route{"/v1/events", readMethods, a.events},
		route{"/v1/whoami", readMethods, a.whoami},
		route{"/metrics", readMethods, promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes}).ServeHTTP},
	)
}

// New returns the handler for all paths, including those of the web page.
func New(opt Options) http.Handler { return newAPI(opt).handler() }

func (a *api) handler() http.Handler {
	mux := http.NewServeMux()
	for _, r := range a.routes() {
		a.takesBody[r.path] = slices.Contains(r.methods, http.MethodPost)
		mux.HandleFunc(r.path, a.allowMethods(r))
	}
	for path, serve := range page.Handlers() {
		if path == "/" {
			path = "/{$}" // and no paths below it
		}
		mux.HandleFunc(path, a.allowMethods(route{path, readMethods, serve}))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		a.respond(w, http.StatusNotFound, a.newFailure("no such path"))
	})
	return http.MaxBytesHandler(setSecurityHeaders(a.admit(mux)), maxBody)
}

// allowMethods returns a handler that checks the method, answers OPTIONS, and serves the route.
func (a *api) allowMethods(to route) http.HandlerFunc {
	allow := strings.Join(to.methods, ", ")
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !slices.Contains(to.methods, r.Method):
			w.Header().Set("Allow", allow)
			a.respond(w, http.StatusMethodNotAllowed, a.newFailure(r.Method+" is not allowed here"))
		case r.Method == http.MethodOptions:
			w.Header().Set("Allow", allow)
			w.WriteHeader(http.StatusNoContent)
		default:
			to.serve(w, r)
		}
	}
}

// setSecurityHeaders sets headers that keep browsers from caching, framing or reinterpreting a response. It sets no CORS headers,
// so pages of other origins cannot read responses.
func setSecurityHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Referrer-Policy", "no-referrer")
		next.ServeHTTP(w, r)
	})
}

// stamp is part of every response: the daemon, its state, and the age of that information.
type stamp struct {
	Node  string `json:"node"`
	Term  int64  `json:"term"`
	State string `json:"state"`
	// Age is the age of the daemon's view.
	Age cluster.Duration `json:"age"`
}

func stampOf(v status.Daemon) stamp { return stamp{v.Node, v.LatestTerm(), v.State(), v.Age} }

// failureResponse is the response to a request that failed.
type failureResponse struct {
	stamp
	Error string `json:"error"`
}

func (a *api) newFailure(why string) failureResponse {
	return failureResponse{stampOf(a.opt.View()), why}
}

func (a *api) respond(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	data, err := json.Marshal(body)
	if err != nil {
		// Only a programming error gets here: responses are structs that can be marshaled.
		panic(fmt.Sprintf("httpapi: response %T: %v", body, err))
	}
	w.Write(append(status.PrintableJSON(data), '\n')) // the client may be gone, so errors do not matter
}
