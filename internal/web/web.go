// Package web serves one daemon's published view over HTTP to load balancers, probes, people and Prometheus, and
// accepts operator requests from authorized clients. It fails closed: if information is stale or unknown, the answer is no.
// HTTP clients cannot delay elections.
package web

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
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
	// Lease asks for an application lease, and ReturnLease returns one. It reports false if it is not known.
	Lease       func(context.Context, applease.Request) (applease.Answer, error)
	ReturnLease func(id string, p applease.Process) bool
	// Publish makes value what the work of a term, 0 for any, publishes. It returns an error if this daemon does not
	// hold that term.
	Publish func(term int64, value string) error
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

// maxScrapes limits concurrent requests for /metrics.
const maxScrapes = 4

// These are the methods that a route accepts. A probe answers OPTIONS as it answers GET: HAProxy's check sends OPTIONS by default, and
// would take any other answer for yes.
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
	takesBody    map[string]bool // the paths of operator requests and of values
	requestQuota *quota          // requests other than probes and those for leases
	leaseQuota   *quota          // requests for leases, which wait
	streamQuota  *quota          // event streams
	groupQuota   *quota          // requests about groups
	members      *memberCache
	submissions  chan struct{} // one element for each operator request that is being submitted
	origins      *http.CrossOriginProtection
	heartbeat    time.Duration
}

func newAPI(opt Options) *api {
	if opt.Authenticator == nil {
		opt.Authenticator = NewAuthenticator(Config{}, slog.New(slog.DiscardHandler))
	}
	return &api{
		opt: opt, takesBody: make(map[string]bool), requestQuota: newQuota(maxRequests, maxClientRequests),
		leaseQuota:  newQuota(maxLeaseRequests, maxLeaseRequests),
		streamQuota: newQuota(maxStreams, maxClientStreams), groupQuota: newQuota(maxGroupReads, maxClientGroupReads),
		submissions: make(chan struct{}, maxSubmissions), origins: http.NewCrossOriginProtection(), members: newMemberCache(), heartbeat: heartbeatInterval,
	}
}

// route is a path with the methods that it accepts and its handler.
type route struct {
	path    string
	methods []string
	serve   http.HandlerFunc
}

// groupRoute is a route about one group. It is served at its path, and at [groupPath] of it.
type groupRoute struct {
	path    string
	methods []string
	serve   groupHandler
}

func (a *api) routes() []route {
	registry := a.opt.Registry
	if registry == nil {
		registry = prometheus.NewRegistry()
	}
	registry.MustRegister(newCollector(a.opt))
	all := []route{
		{"/v1/groups", readMethods, a.groups},
		{"/v1/whoami", readMethods, a.whoami},
		{leasePath, leaseMethods, a.lease},
		{"/metrics", readMethods, promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes}).ServeHTTP},
	}
	for _, kind := range kindsOfHosts {
		all = append(all, route{groupsPath + "/" + string(kind), writeMethods, func(w http.ResponseWriter, r *http.Request) { a.submitForAll(w, r, kind) }})
	}
	for _, r := range a.groupRoutes() {
		all = append(all, route{groupPath(r.path), r.methods, a.withNamedGroup(r.serve)})
		if hostProbe(r.path) == nil {
			all = append(all, route{r.path, r.methods, a.withOnlyGroup(r.serve)})
		} else {
			all = append(all, route{r.path, r.methods, a.probeHost(r.path)})
		}
	}
	return all
}

// groupRoutes returns the routes that are about one group.
func (a *api) groupRoutes() []groupRoute {
	return append(append(a.probeRoutes(), a.requestRoutes()...),
		groupRoute{"/v1/status", readMethods, a.limitGroupReads(a.status)},
		groupRoute{"/v1/history", readMethods, a.limitGroupReads(a.history)},
		groupRoute{"/v1/explain", readMethods, a.limitGroupReads(a.explain)},
		groupRoute{"/v1/whatif", readMethods, a.limitGroupReads(a.whatif)},
		groupRoute{"/v1/events", readMethods, a.events},
		groupRoute{"/v1/value", valueMethods, a.publishValue},
	)
}

// New returns the handler for all paths, including those of the web page.
func New(opt Options) http.Handler { return newAPI(opt).handler() }

func (a *api) handler() http.Handler {
	mux := http.NewServeMux()
	for _, r := range a.routes() {
		a.takesBody[r.path] = slices.ContainsFunc(r.methods, mayHaveBody)
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
	return http.MaxBytesHandler(setSecurityHeaders(a.admit(joinSlot(mux))), maxBody)
}

// mayHaveBody reports whether requests with a method may have a body.
func mayHaveBody(method string) bool { return method == http.MethodPost || method == http.MethodPut }

// allowMethods returns a handler that checks the method and serves the route.
func (a *api) allowMethods(to route) http.HandlerFunc {
	allow := strings.Join(to.methods, ", ")
	return func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(to.methods, r.Method) {
			w.Header().Set("Allow", allow)
			a.respond(w, http.StatusMethodNotAllowed, a.newFailure(r.Method+" is not allowed here"))
			return
		}
		to.serve(w, r)
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
	Node string `json:"node"`
	// Group is the group that the response is about, and Term the daemon's term there; empty if it is about a daemon with several
	// groups.
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

func (a *api) newFailure(why string) failureResponse { return failureResponse{a.stamp(), why} }

// newFailure returns a failure of a request about the group.
func (g *Group) newFailure(why string) failureResponse {
	return failureResponse{stampOf(g.view()), why}
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

// groupPath returns the pattern of a path about one group below [groupsPath], from the path that a daemon with one group serves
// it at, too.
func groupPath(path string) string {
	return groupsPath + "/{group}/" + strings.TrimPrefix(strings.TrimPrefix(path, "/v1/"), "/")
}

// splitGroupPath splits the path of a request about a group below [groupsPath] into the group, with its slot, and the rest.
func splitGroupPath(path string) (name, rest string, ok bool) {
	below, ok := strings.CutPrefix(path, groupsPath+"/")
	if !ok {
		return "", "", false
	}
	name, rest, ok = strings.Cut(below, "/")
	if slot, end, more := strings.Cut(rest, "/"); more && cluster.SlotNumber(slot) >= 0 {
		return name + "/" + slot, end, true
	}
	return name, rest, ok
}

// shortPath is the reverse of groupPath, for the path of a request. Other paths are returned as they are.
func shortPath(path string) string {
	_, rest, ok := splitGroupPath(path)
	if !ok {
		return path
	}
	for _, probe := range ProbePaths() {
		if probe == "/"+rest {
			return probe
		}
	}
	return "/v1/" + rest
}

// joinSlot makes NAME/SLOT one element of the path of a request, as the patterns of the routes have it.
func joinSlot(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name, rest, ok := splitGroupPath(r.URL.Path); ok && strings.Contains(name, "/") {
			r = r.Clone(r.Context())
			r.URL.RawPath = groupsPath + "/" + url.PathEscape(name) + "/" + rest
		}
		next.ServeHTTP(w, r)
	})
}

// withNamedGroup returns a handler for the group in the path, see [api.find].
func (a *api) withNamedGroup(serve groupHandler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		kind := request.Kind(strings.TrimPrefix(shortPath(r.URL.Path), "/v1/"))
		whole := slices.Contains(request.Kinds(), kind) && !kind.OfSlot()
		g, code, why := a.find(r.PathValue("group"), whole)
		if g == nil {
			a.refuseGroup(w, r, code, why)
			return
		}
		serve(w, r, g)
	}
}

// find returns the group with a name, or the code and the reason of the refusal. A request that concerns all slots of a group names
// the group alone, and is served by any of them; others name a slot.
func (a *api) find(name string, whole bool) (g *Group, code int, why string) {
	for _, g := range a.opt.Groups() {
		of, _, slotted := strings.Cut(g.Name, "/")
		switch {
		case g.Name == name && slotted && whole:
			return nil, http.StatusBadRequest, fmt.Sprintf("this request is for all slots of the group: leave out the slot, as in %s/%s", groupsPath, of)
		case g.Name == name:
			return g, 0, ""
		case !slotted || of != name:
		case whole:
			all := *g
			all.Name = name
			return &all, 0, ""
		default:
			return nil, http.StatusBadRequest, fmt.Sprintf("the group has a leader for each slot: name one, as in %s/%s; %s lists them",
				groupsPath, g.Name, groupsPath)
		}
	}
	return nil, http.StatusNotFound, "this daemon has no group of that name: " + groupsPath + " lists its groups"
}

// withOnlyGroup returns a handler for the daemon's only group. If it has several, the request is refused: none of them is meant.
func (a *api) withOnlyGroup(serve groupHandler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		groups := a.opt.Groups()
		if len(groups) == 1 {
			serve(w, r, groups[0])
			return
		}
		a.refuseGroup(w, r, http.StatusBadRequest, fmt.Sprintf("this daemon has %d groups: use %s, with one of the names in %s", len(groups), groupPath(r.URL.Path), groupsPath))
	}
}

func (a *api) refuseGroup(w http.ResponseWriter, r *http.Request, code int, why string) {
	if hasBody(r) {
		closeAfterResponse(w, r)
	}
	a.respond(w, code, a.newFailure(why))
}

const (
	// maxRequests limits concurrent requests other than probes; maxClientRequests those of one address. It is less than maxConns,
	// because a connection with an active request is never evicted.
	maxRequests       = 128
	maxClientRequests = 32
	// hangUpTimeout limits how long the server waits for the rest of a request, or for a client to read a refusal.
	hangUpTimeout = 500 * time.Millisecond
)

// admit rejects some requests before next: those with a Host header that is not this daemon's, those with a body that no
// handler reads, and those that exceed the limits of concurrent requests.
func (a *api) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := a.checkHost(r); err != nil {
			// Without the stamp: this response may be read by a page of another origin.
			closeAfterResponse(w, r)
			a.respond(w, http.StatusMisdirectedRequest, map[string]string{"error": err.Error()})
			return
		}
		path := shortPath(r.URL.Path)
		if hasBody(r) && !(mayHaveBody(r.Method) && a.takesBody[path]) {
			closeAfterResponse(w, r)
			a.respond(w, http.StatusBadRequest, a.newFailure(r.Method+" takes no body here: send none, and no Content-Length"))
			return
		}
		if slices.Contains(ProbePaths(), path) {
			next.ServeHTTP(w, r)
			return
		}
		from, limit := clientOf(r), a.requestQuota
		if c := connOf(r); path == leasePath && r.Method == http.MethodGet && c != nil && c.peer != nil {
			limit = a.leaseQuota
		}
		if !limit.acquire(from) {
			w.Header().Set("Retry-After", "1")
			closeAfterResponse(w, r)
			a.respond(w, http.StatusServiceUnavailable, a.newFailure("too many concurrent requests, in total or from "+from.address))
			return
		}
		defer limit.release(from)
		conn := connOf(r)
		conn.addActiveRequests(1)
		defer conn.addActiveRequests(-1)
		next.ServeHTTP(w, r)
	})
}

// checkHost returns an error if the Host header is not one of this daemon's names. A unix socket needs no check, because browsers
// cannot connect to it.
func (a *api) checkHost(r *http.Request) error {
	if c := connOf(r); a.opt.Hosts == nil || (c != nil && c.RemoteAddr().Network() == "unix") {
		return nil
	}
	return a.opt.Hosts.Check(r.Host)
}

// hasBody reports whether the headers of a request announce a body.
func hasBody(r *http.Request) bool { return r.ContentLength != 0 || len(r.TransferEncoding) > 0 }

// closeAfterResponse makes the server close the connection after the response, and limits how long it waits for the unread rest
// of the body.
func closeAfterResponse(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor > 1 {
		return // other requests share the connection
	}
	w.Header().Set("Connection", "close")
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(hangUpTimeout))
}
