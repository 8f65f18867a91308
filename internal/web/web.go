// Package web serves one daemon's view over HTTP to load balancers, probes, people and Prometheus, and
// accepts operator requests from authorized clients. It fails closed: if information is stale or unknown, the answer is
// no. HTTP clients cannot delay elections.
package web

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
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator/request"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/web/page"
	"zkelectd/internal/work/applease"
)

// Group is one of the daemon's groups, or a slot of one: the sources of the data about it.
type Group struct {
	// Name is that of the group, with the slot as in ingest/3.
	Name string
	// View returns the daemon's current view of the group.
	View func() status.Daemon
	// Totals returns the counters of the group alone.
	Totals func() status.Totals
	// Feed has the events for /v1/events.
	Feed *status.Feed
	// Group, History and Explain return information about the whole group. They limit their own duration.
	Group   func(context.Context) (status.Group, error)
	History func(context.Context) ([]cluster.PastTerm, error)
	Explain func(context.Context) (whatif.Explanation, error)
	// DryRun says what an operator request would do.
	DryRun func(context.Context, request.Request) ([]string, error)
	// Submit submits an operator request. Its errors are those of host.Host.Submit.
	Submit func(context.Context, request.Request) (request.Plan, error)
	// ApplicationLease asks for an application lease, and ReturnApplicationLease returns one. It reports false if it is
	// not known.
	ApplicationLease       func(context.Context, applease.Request) (applease.Answer, error)
	ReturnApplicationLease func(id string, p applease.Process) bool
	// PublishValue makes value what the work of a term, 0 for any, publishes. It returns an error if this daemon does not
	// hold that term.
	PublishValue func(term int64, value string) error
}

// view returns the daemon's current view of the group.
func (g *Group) view() status.Daemon {
	v := g.View()
	v.Group = g.Name
	return v
}

// Options are the sources of the data that the handler serves.
type Options struct {
	// Node is the daemon's node.
	Node string
	// Groups returns the daemon's groups, sorted by name. They change when the configuration is reloaded.
	Groups func() []*Group
	// Totals returns the counters of the daemon, over all its groups and those it had before.
	Totals func() status.Totals
	// Authenticator determines who may submit operator requests. If it is nil, only users of the unix socket may.
	Authenticator *Authenticator
	// Hosts are the names that requests may have in their Host header; nil for any.
	Hosts   *Hosts
	Version string
	// Registry is where the metrics are registered; nil for a new registry.
	Registry *prometheus.Registry
}

// maxScrapes limits concurrent requests for /metrics; maxClientScrapes those of one address.
const (
	maxScrapes       = 8
	maxClientScrapes = 2
)

// These are the methods that a route accepts. A probe answers OPTIONS as it answers GET: HAProxy's check sends OPTIONS
// by default, and would take any other answer for yes.
var (
	readMethods  = []string{http.MethodGet, http.MethodHead}
	probeMethods = []string{http.MethodGet, http.MethodHead, http.MethodOptions}
	writeMethods = []string{http.MethodPost}
	leaseMethods = []string{http.MethodGet, http.MethodDelete}
	valueMethods = []string{http.MethodPut}
)

// api serves the requests.
type api struct {
	opt          Options
	requestQuota *quota // requests other than probes and those for leases
	leaseQuota   *quota // requests for leases, which wait
	streamQuota  *quota // event streams
	groupQuota   *quota // requests about groups
	scrapeQuota  *quota // requests for /metrics
	members      *memberCache
	submissions  *quota // operator requests
	origins      *http.CrossOriginProtection
	heartbeat    time.Duration
}

func newAPI(opt Options) *api {
	if opt.Authenticator == nil {
		opt.Authenticator = NewAuthenticator(Config{}, slog.New(slog.DiscardHandler))
	}
	return &api{
		opt: opt, requestQuota: newQuota(maxRequests, maxClientRequests),
		leaseQuota:  newQuota(maxLeaseRequests, maxLeaseRequests),
		streamQuota: newQuota(maxStreams, maxClientStreams), groupQuota: newQuota(maxGroupReads, maxClientGroupReads),
		scrapeQuota: newQuota(maxScrapes, maxClientScrapes),
		submissions: newQuota(maxSubmissions, maxSubmissions), origins: http.NewCrossOriginProtection(),
		members: newMemberCache(), heartbeat: heartbeatInterval,
	}
}

// route is a path with the methods that it accepts and its handler.
type route struct {
	path    string
	methods []string
	serve   http.HandlerFunc
	probe   bool // it is answered whatever other clients do
}

// groupRoute is a route about one group. It is served at its path, and at [groupPath] of it.
type groupRoute struct {
	path    string
	methods []string
	serve   groupHandler
	probe   bool
	whole   bool // with slots, it is about all of them
}

func (a *api) routes() []route {
	registry := a.opt.Registry
	if registry == nil {
		registry = prometheus.NewRegistry()
	}
	registry.MustRegister(newCollector(a.opt))
	all := []route{
		{path: groupsPath, methods: readMethods, serve: a.groups},
		{path: "/v1/whoami", methods: readMethods, serve: a.whoami},
		{path: leasePath, methods: leaseMethods, serve: a.lease},
		{path: "/metrics", methods: readMethods, serve: a.limitScrapes(promhttp.HandlerFor(registry,
			promhttp.HandlerOpts{}).ServeHTTP)},
	}
	for _, kind := range kindsOfHosts {
		submit := func(w http.ResponseWriter, r *http.Request) { a.submitForAll(w, r, kind) }
		all = append(all, route{path: groupsPath + "/" + string(kind), methods: writeMethods, serve: submit})
	}
	for _, r := range a.groupRoutes() {
		named, only := a.withNamedGroup(r), a.withOnlyGroup(r.serve)
		if hostProbe(r.path) != nil {
			only = a.probeHost(r.path)
		}
		all = append(all, route{groupPath(r.path), r.methods, named, r.probe}, route{r.path, r.methods, only, r.probe})
	}
	return all
}

// limitScrapes limits concurrent requests for /metrics, which are expensive.
func (a *api) limitScrapes(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !a.acquire(w, r, a.scrapeQuota, nil, "requests for metrics") {
			return
		}
		defer a.scrapeQuota.release(clientOf(r))
		serve(w, r)
	}
}

// groupRoutes returns the routes that are about one group.
func (a *api) groupRoutes() []groupRoute {
	return append(append(a.probeRoutes(), a.requestRoutes()...),
		groupRoute{path: "/v1/status", methods: readMethods, serve: a.limitGroupReads(a.status)},
		groupRoute{path: "/v1/history", methods: readMethods, serve: a.limitGroupReads(a.history)},
		groupRoute{path: "/v1/explain", methods: readMethods, serve: a.limitGroupReads(a.explain)},
		groupRoute{path: "/v1/whatif", methods: readMethods, serve: a.limitGroupReads(a.whatif)},
		groupRoute{path: "/v1/events", methods: readMethods, serve: a.events},
		groupRoute{path: "/v1/value", methods: valueMethods, serve: a.publishValue},
	)
}

// New returns the handler for all paths, including those of the web page.
func New(opt Options) http.Handler { return newAPI(opt).handler() }

func (a *api) handler() http.Handler {
	mux := http.NewServeMux()
	for _, r := range a.routes() {
		serve := a.admit(r)
		mux.HandleFunc(r.path, serve)
		if below, ok := strings.CutPrefix(r.path, groupsPath+"/{group}/"); ok {
			mux.HandleFunc(groupsPath+"/{group}/{slot}/"+below, serve)
		}
	}
	for path, serve := range page.Handlers() {
		if path == "/" {
			path = "/{$}" // and no paths below it
		}
		mux.HandleFunc(path, a.admit(route{path: path, methods: readMethods, serve: serve}))
	}
	mux.HandleFunc("/", a.admit(route{serve: func(w http.ResponseWriter, _ *http.Request) {
		a.fail(w, http.StatusNotFound, nil, "no such path")
	}}))
	return http.MaxBytesHandler(setSecurityHeaders(a.screen(mux)), maxBody)
}

// mayHaveBody reports whether requests with a method may have a body.
func mayHaveBody(method string) bool { return method == http.MethodPost || method == http.MethodPut }

// setSecurityHeaders sets headers that keep browsers from caching, framing or reinterpreting a response. It sets no
// CORS headers, so pages of other origins cannot read responses.
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
	Node string `json:"node"`
	// Group is the group that the response is about, and Term the daemon's term there; empty if it is about a daemon
	// with several groups.
	Group string `json:"group,omitempty"`
	Term  *int64 `json:"term,omitempty"`
	State string `json:"state"`
	// Age is the age of the daemon's view.
	Age cluster.Duration `json:"age"`
}

func stampOf(v status.Daemon) stamp {
	term := v.LatestTerm()
	return stamp{v.Node, v.Group, &term, v.State(), v.Age}
}

// stamp returns the stamp of a response that is not about one of several groups.
func (a *api) stamp() stamp {
	views := a.views()
	if len(views) == 1 {
		return stampOf(views[0])
	}
	return stamp{Node: a.opt.Node, State: views.State(), Age: views.Age()}
}

// views returns the daemon's views of all its groups.
func (a *api) views() status.Host {
	var all status.Host
	for _, g := range a.opt.Groups() {
		all = append(all, g.view())
	}
	return all
}

// failureResponse is the response to a request that failed.
type failureResponse struct {
	stamp
	Error string `json:"error"`
}

// fail responds to a request about a group, or about none if g is nil, that failed.
func (a *api) fail(w http.ResponseWriter, code int, g *Group, why string) {
	if g == nil {
		a.respond(w, code, failureResponse{a.stamp(), why})
	} else {
		a.respond(w, code, failureResponse{stampOf(g.view()), why})
	}
}

func (a *api) respond(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	data, err := json.Marshal(body)
	if err != nil {
		// Only a programming error gets here: responses are structs that can be marshaled.
		panic(fmt.Sprintf("web: response %T: %v", body, err))
	}
	w.Write(append(status.PrintableJSON(data), '\n')) // the client may be gone, so errors do not matter
}

// groupHandler serves a request about a group.
type groupHandler func(http.ResponseWriter, *http.Request, *Group)

const groupsPath = "/v1/groups"

// groupPath returns the pattern of a path about one group below [groupsPath], from the path that a daemon with one
// group serves it at, too.
func groupPath(path string) string {
	return groupsPath + "/{group}/" + strings.TrimPrefix(strings.TrimPrefix(path, "/v1/"), "/")
}

// withNamedGroup returns a handler for the group in the path, see [api.find].
func (a *api) withNamedGroup(to groupRoute) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("group")
		if slot := r.PathValue("slot"); slot != "" {
			name += "/" + slot
		}
		g, code, why := a.find(name, to.whole)
		if g == nil {
			a.refuseGroup(w, r, code, why)
			return
		}
		to.serve(w, r, g)
	}
}

// find returns the group with a name, or the code and the reason of the refusal. A request that concerns all slots of a
// group names the group alone, and is served by any of them; others name a slot.
func (a *api) find(name string, whole bool) (g *Group, code int, why string) {
	for _, g := range a.opt.Groups() {
		of, _, slotted := strings.Cut(g.Name, "/")
		switch {
		case g.Name == name && slotted && whole:
			return nil, http.StatusBadRequest, fmt.Sprintf("this request is for all slots of the group: leave out "+
				"the slot, as in %s/%s", groupsPath, of)
		case g.Name == name:
			return g, 0, ""
		case !slotted || of != name:
		case whole:
			all := *g
			all.Name = name
			return &all, 0, ""
		default:
			return nil, http.StatusBadRequest, fmt.Sprintf("the group has a leader for each slot: name one, as in "+
				"%s/%s; %s lists them",
				groupsPath, g.Name, groupsPath)
		}
	}
	return nil, http.StatusNotFound, "this daemon has no group of that name: " + groupsPath + " lists its groups"
}

// withOnlyGroup returns a handler for the daemon's only group. If it has several, the request is refused: none of them
// is meant.
func (a *api) withOnlyGroup(serve groupHandler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		groups := a.opt.Groups()
		if len(groups) == 1 {
			serve(w, r, groups[0])
			return
		}
		a.refuseGroup(w, r, http.StatusBadRequest, fmt.Sprintf("this daemon has %d groups: use %s, with one of "+
			"the names in %s", len(groups), groupPath(r.URL.Path), groupsPath))
	}
}

func (a *api) refuseGroup(w http.ResponseWriter, r *http.Request, code int, why string) {
	if hasBody(r) {
		closeAfterResponse(w, r)
	}
	a.fail(w, code, nil, why)
}

const (
	// maxRequests limits concurrent requests other than probes; maxClientRequests those of one address. It is less than
	// maxConns, because a connection with an active request is never evicted.
	maxRequests       = 128
	maxClientRequests = 32
	// hangUpTimeout limits how long the server waits for the rest of a request, or for a client to read a refusal.
	hangUpTimeout = 500 * time.Millisecond
)

// admit returns a handler that serves a route. It rejects requests with a body that no handler reads, those that
// exceed the limits of concurrent requests, and those with another method.
func (a *api) admit(to route) http.HandlerFunc {
	takesBody, allow := slices.ContainsFunc(to.methods, mayHaveBody), strings.Join(to.methods, ", ")
	return func(w http.ResponseWriter, r *http.Request) {
		if hasBody(r) && !takesBody {
			a.refuseBody(w, r)
			return
		}
		if !to.probe {
			limit, conn := a.requestQuota, connOf(r)
			if to.path == leasePath && r.Method == http.MethodGet && conn != nil && conn.peer != nil {
				limit = a.leaseQuota
			}
			if !a.acquire(w, r, limit, nil, "requests") {
				return
			}
			defer limit.release(clientOf(r))
			conn.addActiveRequests(1)
			defer conn.addActiveRequests(-1)
		}
		if to.methods != nil && !slices.Contains(to.methods, r.Method) {
			w.Header().Set("Allow", allow)
			a.fail(w, http.StatusMethodNotAllowed, nil, r.Method+" is not allowed here")
			return
		}
		to.serve(w, r)
	}
}

// acquire takes one of a quota for the client of a request. If none is free, it responds and returns false. Otherwise
// the caller must release it.
func (a *api) acquire(w http.ResponseWriter, r *http.Request, q *quota, g *Group, what string) bool {
	from := clientOf(r)
	if q.acquire(from) {
		return true
	}
	w.Header().Set("Retry-After", "1")
	closeAfterResponse(w, r)
	a.fail(w, http.StatusServiceUnavailable, g, "too many concurrent "+what+", in total or from "+from.address)
	return false
}

// screen rejects requests with a Host header that is not this daemon's, and those with a body that nothing reads,
// whatever their path.
func (a *api) screen(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := a.checkHost(r); err != nil {
			// Without the stamp: this response may be read by a page of another origin.
			closeAfterResponse(w, r)
			a.respond(w, http.StatusMisdirectedRequest, map[string]string{"error": err.Error()})
			return
		}
		if hasBody(r) && !mayHaveBody(r.Method) {
			a.refuseBody(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (a *api) refuseBody(w http.ResponseWriter, r *http.Request) {
	closeAfterResponse(w, r)
	a.fail(w, http.StatusBadRequest, nil, r.Method+" takes no body here: send none, and no Content-Length")
}

// checkHost returns an error if the Host header is not one of this daemon's names. A unix socket needs no check,
// because browsers cannot connect to it.
func (a *api) checkHost(r *http.Request) error {
	if c := connOf(r); a.opt.Hosts == nil || (c != nil && c.RemoteAddr().Network() == "unix") {
		return nil
	}
	return a.opt.Hosts.Check(r.Host)
}

// hasBody reports whether the headers of a request announce a body.
func hasBody(r *http.Request) bool { return r.ContentLength != 0 || len(r.TransferEncoding) > 0 }

// closeAfterResponse makes the server close the connection after the response, and limits how long it waits for the
// unread rest of the body.
func closeAfterResponse(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor > 1 {
		return // other requests share the connection
	}
	w.Header().Set("Connection", "close")
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(hangUpTimeout))
}
