package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"zkelectd/internal/operator/request"
)

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
		a.respond(w, http.StatusBadRequest, g.newFailure(err.Error()))
		return
	}
	if !a.requireLoop(w, g) {
		return
	}
	if g.DryRun == nil {
		a.respond(w, http.StatusServiceUnavailable, g.newFailure("not available from this daemon"))
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
		a.respond(w, http.StatusServiceUnavailable, g.newFailure(err.Error()))
	}
}

// kindParameter is the query parameter that has the kind of the request. The others are the fields of its body.
const kindParameter = "request"

// flags are the fields that are true or false.
var flags = []string{request.FieldAll, request.FieldHard, request.FieldForce, request.FieldCancel}

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
