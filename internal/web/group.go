package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator/status"
)

// maxGroupReads limits concurrent requests about groups; maxClientGroupReads those of one address. defaultTerms is how many
// terms /v1/history returns by default.
const (
	maxGroupReads       = 8
	maxClientGroupReads = 4
	defaultTerms        = 20
)

// limitGroupReads limits concurrent requests about groups, which are expensive.
func (a *api) limitGroupReads(serve groupHandler) groupHandler {
	return func(w http.ResponseWriter, r *http.Request, g *Group) {
		if !a.acquireGroupRead(w, r, g.newFailure) {
			return
		}
		defer a.groupQuota.release(clientOf(r))
		serve(w, r, g)
	}
}

// statusResponse is the response of /v1/status: the daemon's view, and the group if it is available.
type statusResponse struct {
	status.Response
	GroupStatus *status.Group `json:"group_status,omitempty"`
	// GroupError is why GroupStatus is missing.
	GroupError string `json:"group_error,omitempty"`
}

// status responds with the daemon's view and the group. If the view is stale, the status is 503, so that no program relies on it.
func (a *api) status(w http.ResponseWriter, r *http.Request, g *Group) {
	v := g.view()
	body, code := statusResponse{Response: v.Response()}, http.StatusOK
	switch err := v.CheckLoop(); {
	case err != nil:
		code, body.GroupError = http.StatusServiceUnavailable, err.Error()
	default:
		if whole, err := ask(r.Context(), g.Group); err != nil {
			body.GroupError = err.Error()
		} else {
			body.GroupStatus = &whole
		}
	}
	a.respond(w, code, body)
}

// historyResponse is the response of /v1/history.
type historyResponse struct {
	stamp
	Terms []cluster.PastTerm `json:"terms"`
}

// history responds with the last terms, oldest first. The parameter n is their number.
func (a *api) history(w http.ResponseWriter, r *http.Request, g *Group) {
	n, err := queryNumber(r, "n", defaultTerms)
	if err != nil {
		a.respond(w, http.StatusBadRequest, g.newFailure(err.Error()))
		return
	}
	if all, ok := a.readHistory(w, r, g); ok {
		last := all[max(0, len(all)-int(min(n, cluster.MaxHistory))):]
		a.respond(w, http.StatusOK, historyResponse{stampOf(g.view()), append([]cluster.PastTerm{}, last...)})
	}
}

// readHistory returns the history. If that fails, it responds with the error and returns false.
func (a *api) readHistory(w http.ResponseWriter, r *http.Request, g *Group) ([]cluster.PastTerm, bool) {
	if !a.requireLoop(w, g) {
		return nil, false
	}
	all, err := ask(r.Context(), g.History)
	if err != nil {
		a.respond(w, http.StatusServiceUnavailable, g.newFailure(err.Error()))
	}
	return all, err == nil
}

// requireLoop returns true if the daemon's event loop is not stuck. Otherwise it responds with the reason.
func (a *api) requireLoop(w http.ResponseWriter, g *Group) bool {
	err := g.view().CheckLoop()
	if err != nil {
		a.respond(w, http.StatusServiceUnavailable, g.newFailure(err.Error()))
	}
	return err == nil
}

// explainResponse is the response of /v1/explain.
type explainResponse struct {
	stamp
	// Explanation is for the current term, Past for an earlier one.
	Explanation *whatif.Explanation `json:"explanation,omitempty"`
	Past        *cluster.PastTerm   `json:"past,omitempty"`
}

// explain responds with the reasons for the choice of the leader. The parameter term is the term; the default is the current one.
func (a *api) explain(w http.ResponseWriter, r *http.Request, g *Group) {
	term, err := queryNumber(r, "term", 0)
	switch {
	case err != nil:
		a.respond(w, http.StatusBadRequest, g.newFailure(err.Error()))
	case term != 0:
		a.explainPast(w, r, g, term)
	case a.requireLoop(w, g):
		e, err := ask(r.Context(), g.Explain)
		if err != nil {
			a.respond(w, http.StatusServiceUnavailable, g.newFailure(err.Error()))
			return
		}
		a.respond(w, http.StatusOK, explainResponse{stamp: stampOf(g.view()), Explanation: &e})
	}
}

// explainPast responds with the term's record in the history.
func (a *api) explainPast(w http.ResponseWriter, r *http.Request, g *Group, term int64) {
	all, ok := a.readHistory(w, r, g)
	if !ok {
		return
	}
	i := slices.IndexFunc(all, func(t cluster.PastTerm) bool { return t.Term == term })
	if i < 0 {
		a.respond(w, http.StatusNotFound, g.newFailure(fmt.Sprintf("term %d is not in the history", term)))
		return
	}
	a.respond(w, http.StatusOK, explainResponse{stamp: stampOf(g.view()), Past: &all[i]})
}

// queryNumber returns a query parameter that must be 1 or more, or otherwise if it is absent.
func queryNumber(r *http.Request, name string, otherwise int64) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s: %q is not a number of 1 or more", name, text)
	}
	return n, nil
}

// ask calls a function of a [Group], or returns an error if it is nil.
func ask[T any](ctx context.Context, of func(context.Context) (T, error)) (result T, err error) {
	if of == nil {
		return result, errors.New("not available from this daemon")
	}
	return of(ctx)
}
