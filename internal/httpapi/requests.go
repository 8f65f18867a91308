package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/request"
)

const (
	// maxBody bounds the body of an operator request, in bytes.
	maxBody = 64 << 10
	// maxSubmissions bounds how many are submitted at once: the daemon handles one after another.
	maxSubmissions = 4
	// submitLimit bounds how long a client waits for the answer. It is less than the answer may take to be written.
	submitLimit = 8 * time.Second
)

// accepted is the answer to an operator request: as the command prints it with -o json.
type accepted struct {
	stamp
	Request  int64    `json:"request"`
	Messages []string `json:"messages"`
	By       string   `json:"by"`
}

// requests returns the routes of operator requests, one for each kind.
func (a *api) requests() []route {
	var all []route
	for _, kind := range request.Kinds() {
		all = append(all, route{"/v1/" + string(kind), writing, func(w http.ResponseWriter, r *http.Request) { a.submit(w, r, kind) }})
	}
	return all
}

// submit submits an operator request, if the client may.
func (a *api) submit(w http.ResponseWriter, r *http.Request, kind request.Kind) {
	if err := a.origins.Check(r); err != nil {
		hurry(w, r)
		a.respond(w, http.StatusForbidden, a.refusal("another origin's page asks for this: "+err.Error()))
		return
	}
	by := a.opt.Authenticator.authenticate(r)
	if by.code != 0 {
		a.turnAway(w, r, by)
		return
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		hurry(w, r)
		a.respond(w, http.StatusUnsupportedMediaType, a.refusal("the body must have Content-Type: application/json"))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		a.respond(w, http.StatusRequestEntityTooLarge, a.refusal(fmt.Sprintf("the body has more than %d bytes", maxBody)))
		return
	case err != nil:
		a.respond(w, http.StatusBadRequest, a.refusal("the body did not arrive"))
		return
	}
	req, err := decodeRequest(kind, body)
	if err != nil {
		a.respond(w, http.StatusBadRequest, a.refusal(err.Error()))
		return
	}
	req.Options.By = by.name
	a.give(w, r, req)
}

// turnAway refuses who may not.
func (a *api) turnAway(w http.ResponseWriter, r *http.Request, by principal) {
	hurry(w, r)
	switch by.code {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="zkelectd"`)
	case http.StatusTooManyRequests:
		w.Header().Set("Retry-After", "5")
	}
	a.respond(w, by.code, a.refusal(by.why))
}

// give has the daemon submit the request. It fails closed: a daemon whose view of the group is stale asks for nothing.
func (a *api) give(w http.ResponseWriter, r *http.Request, req request.Request) {
	if !a.turns(w) {
		return
	}
	if a.opt.Submit == nil {
		a.respond(w, http.StatusServiceUnavailable, a.refusal("this daemon accepts no operator requests"))
		return
	}
	select {
	case a.submissions <- struct{}{}:
		defer func() { <-a.submissions }()
	default:
		w.Header().Set("Retry-After", "1")
		a.respond(w, http.StatusServiceUnavailable, a.refusal("too many operator requests at once"))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), submitLimit)
	defer cancel()
	plan, err := a.opt.Submit(ctx, req)
	var refused *request.RefusedError
	switch {
	case err == nil:
		a.respond(w, http.StatusOK, accepted{stampOf(a.opt.View()), plan.ID, plan.Messages, req.Options.By})
	case errors.As(err, &refused):
		a.respond(w, http.StatusConflict, a.refusal(err.Error()))
	case errors.Is(err, cluster.ErrUnknown):
		a.respond(w, http.StatusGatewayTimeout, a.refusal("it is not known whether the request was accepted, see /v1/status: "+err.Error()))
	default:
		a.respond(w, http.StatusServiceUnavailable, a.refusal(err.Error()))
	}
}

// decodeRequest reads the fields that a kind has, and no others: what is misspelt must not be left out in silence.
func decodeRequest(kind request.Kind, body []byte) (request.Request, error) {
	r := request.Request{Kind: kind}
	var lasts cluster.Duration
	fields := map[string]any{
		request.FieldNode: &r.Node, request.FieldSite: &r.Site, request.FieldAll: &r.All, request.FieldHard: &r.Hard,
		request.FieldFor: &lasts, request.FieldForce: &r.Options.Force, fieldReason: &r.Options.Reason,
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
			return r, fmt.Errorf("%s: is given twice", name)
		}
		seen[name] = true
		if err := d.Decode(fields[name]); err != nil {
			return r, fmt.Errorf("%s: %s", name, wants(fields[name]))
		}
	}
	if _, err := d.Token(); err != nil {
		return r, errors.New("the body is not JSON")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return r, errors.New("something follows the JSON object")
	}
	r.Options.For = time.Duration(lasts)
	if seen[request.FieldFor] && lasts <= 0 {
		return r, errors.New("for: must be more than 0s; leave it out for a request without end")
	}
	if kind == request.KindStepDown && !seen[request.FieldFor] {
		r.Options.For = request.StepDownFor
	}
	return r, r.Check()
}

// fieldReason is of every kind.
const fieldReason = "reason"

// wants says what a field must be.
func wants(field any) string {
	switch field.(type) {
	case *bool:
		return "must be true or false"
	case *cluster.Duration:
		return `must be a duration, as in "2h"`
	}
	return "must be a string"
}

// identity is the answer of whoami.
type identity struct {
	stamp
	Name string `json:"name"`
	How  string `json:"how"`
	// CanOperate reports whether the client may submit operator requests, Why why not.
	CanOperate bool   `json:"can_operate"`
	Why        string `json:"why,omitempty"`
}

// whoami is never an error: nobody in particular may ask as well.
func (a *api) whoami(w http.ResponseWriter, r *http.Request) {
	by := a.opt.Authenticator.authenticate(r)
	a.respond(w, http.StatusOK, identity{stampOf(a.opt.View()), by.name, by.how, by.code == 0, by.why})
}
