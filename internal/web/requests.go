package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/request"
)

const (
	// maxBody is the maximum size of the body of an operator request, in bytes.
	maxBody = 64 << 10
	// maxSubmissions limits concurrent operator requests: the daemon handles one after another.
	maxSubmissions = 4
	// submitTimeout limits how long an operator request may take. It is less than the server's write timeout.
	submitTimeout = 8 * time.Second
)

// submitResponse is the response to an operator request. The commands print the same with -o json.
type submitResponse struct {
	stamp
	Request  int64    `json:"request"`
	Messages []string `json:"messages"`
	By       string   `json:"by"`
}

// requestRoutes returns the routes of operator requests, one for each kind.
func (a *api) requestRoutes() []groupRoute {
	var all []groupRoute
	for _, kind := range request.Kinds() {
		submit := func(w http.ResponseWriter, r *http.Request, g *Group) { a.submit(w, r, g, kind) }
		all = append(all, groupRoute{path: "/v1/" + string(kind), methods: writeMethods, serve: submit,
			whole: !kind.OfSlot()})
	}
	return all
}

// submit handles an operator request about a group.
func (a *api) submit(w http.ResponseWriter, r *http.Request, g *Group, kind request.Kind) {
	by := a.opt.Authenticator.authenticate(r).limitTo(g.Name)
	req, ok := a.readRequest(w, r, kind, by, g)
	if !ok || !a.acquire(w, r, a.submissions, g, submitted) {
		return
	}
	defer a.submissions.release(clientOf(r))
	ctx, cancel := context.WithTimeout(r.Context(), submitTimeout)
	defer cancel()
	plan, code, err := g.submit(ctx, req)
	if err != nil {
		a.fail(w, code, g, err.Error())
		return
	}
	a.respond(w, http.StatusOK, submitResponse{stampOf(g.view()), plan.ID, plan.Messages, by.name})
}

// submitted are the requests that a.submissions limits.
const submitted = "operator requests"

// readRequest decodes the body of a request about a group, or about all if g is nil. If it returns false, it has
// responded.
func (a *api) readRequest(w http.ResponseWriter, r *http.Request, kind request.Kind, by principal,
	g *Group) (req request.Request, ok bool) {
	if err := a.origins.Check(r); err != nil {
		closeAfterResponse(w, r)
		a.fail(w, http.StatusForbidden, g, "the request comes from a page of another origin: "+err.Error())
		return req, false
	}
	if by.refusalCode != 0 {
		a.refusePrincipal(w, r, g, by)
		return req, false
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		closeAfterResponse(w, r)
		a.fail(w, http.StatusUnsupportedMediaType, g, "the body must have Content-Type: application/json")
		return req, false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		a.fail(w, http.StatusRequestEntityTooLarge, g, fmt.Sprintf("the body has more than %d bytes", maxBody))
		return req, false
	case err != nil:
		a.fail(w, http.StatusBadRequest, g, "the body did not arrive completely")
		return req, false
	}
	if req, err = decodeRequest(kind, body); err != nil {
		a.fail(w, http.StatusBadRequest, g, err.Error())
		return req, false
	}
	req.Options.By = by.name
	return req, true
}

// refusePrincipal responds to a principal that may not submit operator requests.
func (a *api) refusePrincipal(w http.ResponseWriter, r *http.Request, g *Group, by principal) {
	closeAfterResponse(w, r)
	if by.refusalCode == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="zkelectd"`)
	}
	a.fail(w, by.refusalCode, g, by.refusalReason)
}

// submit submits the request to the daemon. It fails closed: if the daemon's view of the group is stale, it submits
// nothing. With an error it returns the status for it.
func (g *Group) submit(ctx context.Context, req request.Request) (request.Plan, int, error) {
	if err := g.view().CheckLoop(); err != nil {
		return request.Plan{}, http.StatusServiceUnavailable, err
	}
	plan, err := g.Submit(ctx, req)
	var refused *request.RefusedError
	switch {
	case errors.As(err, &refused):
		return plan, http.StatusConflict, err
	case errors.Is(err, cluster.ErrUnknown):
		return plan, http.StatusGatewayTimeout, fmt.Errorf("it is unknown whether the request was accepted, see "+
			"/v1/status: %w", err)
	case err != nil:
		return plan, http.StatusServiceUnavailable, err
	}
	return plan, http.StatusOK, nil
}

// kindsOfHosts are the kinds of requests that can be submitted for a host in all groups of the daemon at once.
var kindsOfHosts = []request.Kind{request.KindCordon, request.KindDrain, request.KindUncordon}

// allResponse is the response to an operator request for all groups of the daemon.
type allResponse struct {
	stamp
	Groups []groupOutcome `json:"groups"`
	By     string         `json:"by"`
}

// groupOutcome is what has become of the request in a group: Error is why it was not accepted there. A group that it
// does not affect has Messages only.
type groupOutcome struct {
	Group    string   `json:"group"`
	Request  int64    `json:"request,omitempty"`
	Messages []string `json:"messages,omitempty"`
	Error    string   `json:"error,omitempty"`
}

// submitForAll handles an operator request for all groups of the daemon. The status is that of the first group in which
// it was not accepted.
func (a *api) submitForAll(w http.ResponseWriter, r *http.Request, kind request.Kind) {
	by := a.opt.Authenticator.authenticate(r)
	req, ok := a.readRequest(w, r, kind, by, nil)
	if !ok || !a.acquire(w, r, a.submissions, nil, submitted) {
		return
	}
	defer a.submissions.release(clientOf(r))
	ctx, cancel := context.WithTimeout(r.Context(), submitTimeout)
	defer cancel()
	groups := a.wholes()
	outcomes, codes := make([]groupOutcome, len(groups)), make([]int, len(groups))
	var all errgroup.Group
	all.SetLimit(maxSubmissions)
	for i, g := range groups {
		all.Go(func() error {
			outcomes[i], codes[i] = g.outcome(ctx, req, by.limitTo(g.Name))
			return nil
		})
	}
	_ = all.Wait() // outcome has no error
	code := http.StatusOK
	if i := slices.IndexFunc(codes, func(c int) bool { return c != http.StatusOK }); i >= 0 {
		code = codes[i]
	}
	a.respond(w, code, allResponse{a.stamp(), outcomes, by.name})
}

// outcome submits the request, and returns what has become of it, with the status for that.
func (g *Group) outcome(ctx context.Context, req request.Request, by principal) (groupOutcome, int) {
	if by.refusalCode != 0 {
		return groupOutcome{Group: g.Name, Error: by.refusalReason}, by.refusalCode
	}
	plan, code, err := g.submit(ctx, req)
	var none *request.NotAffectedError
	switch {
	case errors.As(err, &none):
		return groupOutcome{Group: g.Name, Messages: []string{none.Error()}}, http.StatusOK
	case err != nil:
		return groupOutcome{Group: g.Name, Error: err.Error()}, code
	}
	return groupOutcome{Group: g.Name, Request: plan.ID, Messages: plan.Messages}, http.StatusOK
}

// wholes returns the daemon's groups; one with slots once, by its name.
func (a *api) wholes() (all []*Group) {
	for _, g := range a.opt.Groups() {
		of, _, slotted := strings.Cut(g.Name, "/")
		if slotted {
			if len(all) > 0 && all[len(all)-1].Name == of {
				continue
			}
			whole := *g
			whole.Name, g = of, &whole
		}
		all = append(all, g)
	}
	return all
}

// decodeRequest decodes the body of an operator request. It rejects fields that kind does not have, so that a
// misspelled field is not silently ignored.
func decodeRequest(kind request.Kind, body []byte) (request.Request, error) {
	r := request.Request{Kind: kind}
	var lasts cluster.Duration
	fields := map[string]any{
		request.FieldNode: &r.Node, request.FieldSite: &r.Site, request.FieldAll: &r.All, request.FieldHard: &r.Hard,
		request.FieldFor: &lasts, request.FieldForce: &r.Options.Force, request.FieldReject: &r.Reject,
		fieldReason: &r.Options.Reason,
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return r, errors.New("the body is not a JSON object")
	}
	seen := make(map[string]bool)
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		switch {
		case err != nil || !ok:
			return r, errors.New("the body is not JSON")
		case name != fieldReason && !kind.Takes(name):
			return r, fmt.Errorf("%s has no field %q", kind, name)
		case seen[name]:
			return r, fmt.Errorf("%s: appears twice", name)
		}
		seen[name] = true
		if err := d.Decode(fields[name]); err != nil {
			return r, fmt.Errorf("%s: %s", name, fieldValues(fields[name]))
		}
	}
	if _, err := d.Token(); err != nil {
		return r, errors.New("the body is not JSON")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return r, errors.New("there is more text after the JSON object")
	}
	r.Options.For = time.Duration(lasts)
	if seen[request.FieldFor] && lasts <= 0 {
		return r, errors.New("for: must be more than 0s; omit it for a request without an end")
	}
	r.Best = kind == request.KindMove && !seen[request.FieldNode] && !seen[request.FieldSite]
	return r, r.Check()
}

// fieldReason is a field that every kind has.
const fieldReason = "reason"

// fieldValues returns which values a field accepts.
func fieldValues(field any) string {
	switch field.(type) {
	case *bool:
		return "must be true or false"
	case *cluster.Duration:
		return `must be a duration, as in "2h"`
	}
	return "must be a string"
}

// whoamiResponse is the response of /v1/whoami.
type whoamiResponse struct {
	stamp
	Name string `json:"name"`
	How  string `json:"how"`
	// CanOperate reports whether the client may submit operator requests; if not, Reason is why.
	CanOperate bool `json:"can_operate"`
	// Groups are the groups to which its requests are limited; none if they are not.
	Groups []string `json:"groups,omitempty"`
	Reason string   `json:"reason,omitempty"`
}

// whoami returns who the client is. It always succeeds, also for anonymous clients.
func (a *api) whoami(w http.ResponseWriter, r *http.Request) {
	by := a.opt.Authenticator.authenticate(r)
	a.respond(w, http.StatusOK, whoamiResponse{a.stamp(), by.name, by.method, by.refusalCode == 0, by.groups,
		by.refusalReason})
}

// whatifResponse is the response of /v1/whatif.
type whatifResponse struct {
	stamp
	Messages []string `json:"messages"`
	// Refused is why the request would be refused; empty if it would not.
	Refused string `json:"refused,omitempty"`
}

// whatif responds with what an operator request would do. Anyone may ask: nothing is submitted.
func (a *api) whatif(w http.ResponseWriter, r *http.Request, g *Group) {
	req, err := queryRequest(r.URL.Query())
	if err != nil {
		a.fail(w, http.StatusBadRequest, g, err.Error())
		return
	}
	if !a.requireLoop(w, g) {
		return
	}
	req.Options.By = "you"
	lines, err := g.DryRun(r.Context(), req)
	var refused *request.RefusedError
	switch {
	case err == nil:
		a.respond(w, http.StatusOK, whatifResponse{stamp: stampOf(g.view()), Messages: lines})
	case errors.As(err, &refused):
		a.respond(w, http.StatusOK, whatifResponse{stamp: stampOf(g.view()), Messages: []string{}, Refused: err.Error()})
	default:
		a.fail(w, http.StatusServiceUnavailable, g, err.Error())
	}
}

// kindParameter is the query parameter that has the kind of the request. The others are the fields of its body.
const kindParameter = "request"

// flags are the fields that are true or false.
var flags = []string{request.FieldAll, request.FieldHard, request.FieldForce}

// queryRequest returns the operator request that a query describes.
func queryRequest(query url.Values) (request.Request, error) {
	kind := request.Kind(query.Get(kindParameter))
	if !slices.Contains(request.Kinds(), kind) {
		return request.Request{}, fmt.Errorf("%s: %q is not one of %v", kindParameter, kind, request.Kinds())
	}
	body := make(map[string]any)
	for name, values := range query {
		switch value := values[0]; {
		case len(values) > 1:
			return request.Request{}, fmt.Errorf("%s: appears twice", name)
		case name == kindParameter:
		case slices.Contains(flags, name) && (value == "true" || value == "false"):
			body[name] = value == "true"
		default:
			body[name] = value
		}
	}
	data, err := json.Marshal(body)
	if err != nil {
		return request.Request{}, err
	}
	return decodeRequest(kind, data)
}
