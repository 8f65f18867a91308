// Package httpapi shows one daemon's published View over HTTP: to load balancers and probes, to people, to Prometheus. Who may
// accepts operator requests. It fails closed: what is stale or unknown is no. Nothing that asks it can hold the election up.
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

// Options are what the handler shows.
type Options struct {
	// View returns the daemon's view as of now.
	View func() status.Daemon
	// Totals returns what the daemon has counted; nil for nothing.
	Totals func() status.Totals
	// Feed has what has changed; nil for none.
	Feed *status.Feed
	// Group, History and Explain answer about the whole group, within a short time of their own; nil if nobody can.
	Group   func(context.Context) (status.Group, error)
	History func(context.Context) ([]cluster.PastTerm, error)
	Explain func(context.Context) (whatif.Explanation, error)
	// Submit submits an operator request; nil if that is not possible. Its errors are those of daemon.Submit.
	Submit func(context.Context, request.Request) (request.Plan, error)
	// Authenticator decides who may submit operator requests; nil for anyone who can open the unix socket.
	Authenticator *Authenticator
	// Hosts are the names that requests may be for; nil for any.
	Hosts   *Hosts
	Version string
	// Registry is where the metrics go, beside what is there already; nil for one of their own.
	Registry *prometheus.Registry
}

// maxScrapes bounds how many metrics are collected at once.
const maxScrapes = 4

// reading and writing are the methods that paths take.
var (
	reading = []string{http.MethodGet, http.MethodHead, http.MethodOptions}
	writing = []string{http.MethodPost, http.MethodOptions}
)

// api answers from the view.
type api struct {
	opt         Options
	takesBody   map[string]bool // the paths of operator requests
	desks       *shares         // of requests other than probes
	listeners   *shares         // of those that follow the events
	askers      *shares         // of requests about the group
	submissions chan struct{}   // one for each operator request that is being submitted
	origins     *http.CrossOriginProtection
	beat        time.Duration
}

func newAPI(opt Options) *api {
	opt.Group, opt.History, opt.Explain = known(opt.Group), known(opt.History), known(opt.Explain)
	if opt.Authenticator == nil {
		opt.Authenticator = NewAuthenticator(Web{}, slog.New(slog.DiscardHandler))
	}
	return &api{
		opt: opt, takesBody: make(map[string]bool), desks: newShares(maxDesks, clientDesks),
		listeners: newShares(maxListeners, clientListeners), askers: newShares(maxAskers, clientAskers),
		submissions: make(chan struct{}, maxSubmissions), origins: http.NewCrossOriginProtection(), beat: beatEvery,
	}
}

// route is a path, the methods that it takes, and what serves it.
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
	return append(append(a.probes(), a.requests()...),
		route{"/v1/status", reading, a.bounded(a.status)},
		route{"/v1/history", reading, a.bounded(a.history)},
		route{"/v1/explain", reading, a.bounded(a.explain)},
		route{"/v1/events", reading, a.events},
		route{"/v1/whoami", reading, a.whoami},
		route{"/metrics", reading, promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes}).ServeHTTP},
	)
}

// New returns the handler.
func New(opt Options) http.Handler { return newAPI(opt).handler() }

func (a *api) handler() http.Handler {
	mux := http.NewServeMux()
	for _, r := range a.routes() {
		a.takesBody[r.path] = slices.Contains(r.methods, http.MethodPost)
		mux.HandleFunc(r.path, a.method(r))
	}
	for path, serve := range page.Handlers() {
		if path == "/" {
			path = "/{$}" // and nothing below it
		}
		mux.HandleFunc(path, a.method(route{path, reading, serve}))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		a.respond(w, http.StatusNotFound, a.refusal("there is nothing at this path"))
	})
	return http.MaxBytesHandler(secure(a.guarded(mux)), maxBody)
}

// method lets through the methods of a route, and tells of them.
func (a *api) method(to route) http.HandlerFunc {
	allow := strings.Join(to.methods, ", ")
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !slices.Contains(to.methods, r.Method):
			w.Header().Set("Allow", allow)
			a.respond(w, http.StatusMethodNotAllowed, a.refusal(r.Method+" is not allowed here"))
		case r.Method == http.MethodOptions:
			w.Header().Set("Allow", allow)
			w.WriteHeader(http.StatusNoContent)
		default:
			to.serve(w, r)
		}
	}
}

// secure sets what keeps a browser from making more of an answer than it is. There is no CORS: another origin's page may
// not read any of it.
func secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Referrer-Policy", "no-referrer")
		next.ServeHTTP(w, r)
	})
}

// stamp is in every answer: who answers, where it stands, and how old that knowledge is.
type stamp struct {
	Node  string `json:"node"`
	Term  int64  `json:"term"`
	State string `json:"state"`
	// Age is that of the daemon's view.
	Age cluster.Duration `json:"age"`
}

func stampOf(v status.Daemon) stamp { return stamp{v.Node, v.LatestTerm(), v.State(), v.Age} }

// failure is the answer where there is nothing else to say.
type failure struct {
	stamp
	Error string `json:"error"`
}

func (a *api) refusal(why string) failure { return failure{stampOf(a.opt.View()), why} }

func (a *api) respond(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	data, err := json.Marshal(body)
	if err != nil {
		// Answers are plain structs of marshalable fields; only a programming error gets here.
		panic(fmt.Sprintf("httpapi: answer %T: %v", body, err))
	}
	w.Write(append(status.PlainJSON(data), '\n')) // a client that has gone is no concern
}
