package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"zkelectd/internal/cluster"
	"zkelectd/internal/status"
	"zkelectd/internal/whatif"
)

// maxGroupReads limits concurrent requests about the group; maxClientGroupReads those of one address. defaultTerms is how many
// terms /v1/history returns by default.
const (
	maxGroupReads       = 8
	maxClientGroupReads = 4
	defaultTerms        = 20
)

// limitGroupReads limits concurrent requests about the group, which are expensive.
func (a *api) limitGroupReads(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		from := clientOf(r)
		if !a.groupQuota.acquire(from) {
			w.Header().Set("Retry-After", "1")
			a.respond(w, http.StatusServiceUnavailable, a.newFailure("too many concurrent requests about the group, in total or from "+from.address))
			return
		}
		defer a.groupQuota.release(from)
		serve(w, r)
	}
}

// statusResponse is the response of /v1/status: the daemon's view, and the group if it is available.
type statusResponse struct {
	status.Response
	Group *status.Group `json:"group,omitempty"`
	// GroupError is why Group is missing.
	GroupError string `json:"group_error,omitempty"`
}

// status responds with the daemon's view and the group. If the view is stale, the status is 503, so that no program relies on it.
func (a *api) status(w http.ResponseWriter, r *http.Request) {
	v := a.opt.View()
	body, code := statusResponse{Response: v.Response()}, http.StatusOK
	switch err := v.CheckLoop(); {
	case err != nil:
		code, body.GroupError = http.StatusServiceUnavailable, err.Error()
	default:
		if g, err := a.opt.Group(r.Context()); err != nil {
			body.GroupError = err.Error()
		} else {
			body.Group = &g
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
func (a *api) history(w http.ResponseWriter, r *http.Request) {
	n, err := queryNumber(r, "n", defaultTerms)
	if err != nil {
		a.respond(w, http.StatusBadRequest, a.newFailure(err.Error()))
		return
	}
	if all, ok := a.readHistory(w, r); ok {
		last := all[max(0, len(all)-int(min(n, cluster.MaxHistory))):]
		a.respond(w, http.StatusOK, historyResponse{stampOf(a.opt.View()), append([]cluster.PastTerm{}, last...)})
	}
}

// readHistory returns the history. If that fails, it responds with the error and returns false.
func (a *api) readHistory(w http.ResponseWriter, r *http.Request) ([]cluster.PastTerm, bool) {
	if !a.requireLoop(w) {
		return nil, false
	}
	all, err := a.opt.History(r.Context())
	if err != nil {
		a.respond(w, http.StatusServiceUnavailable, a.newFailure(err.Error()))
	}
	return all, err == nil
}

// requireLoop returns true if the daemon's event loop is not stuck. Otherwise it responds with the reason.
func (a *api) requireLoop(w http.ResponseWriter) bool {
	err := a.opt.View().CheckLoop()
	if err != nil {
		a.respond(w, http.StatusServiceUnavailable, a.newFailure(err.Error()))
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
func (a *api) explain(w http.ResponseWriter, r *http.Request) {
	term, err := queryNumber(r, "term", 0)
	switch {
	case err != nil:
		a.respond(w, http.StatusBadRequest, a.newFailure(err.Error()))
	case term != 0:
		a.explainPast(w, r, term)
	case a.requireLoop(w):
		e, err := a.opt.Explain(r.Context())
		if err != nil {
			a.respond(w, http.StatusServiceUnavailable, a.newFailure(err.Error()))
			return
		}
		a.respond(w, http.StatusOK, explainResponse{stamp: stampOf(a.opt.View()), Explanation: &e})
	}
}

// explainPast responds with the term's record in the history.
func (a *api) explainPast(w http.ResponseWriter, r *http.Request, term int64) {
	all, ok := a.readHistory(w, r)
	if !ok {
		return
	}
	i := slices.IndexFunc(all, func(t cluster.PastTerm) bool { return t.Term == term })
	if i < 0 {
		a.respond(w, http.StatusNotFound, a.newFailure(fmt.Sprintf("term %d is not in the history", term)))
		return
	}
	a.respond(w, http.StatusOK, explainResponse{stamp: stampOf(a.opt.View()), Past: &all[i]})
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

// orUnavailable returns ask, or a function that returns an error if ask is nil.
func orUnavailable[T any](ask func(context.Context) (T, error)) func(context.Context) (T, error) {
	if ask != nil {
		return ask
	}
	return func(context.Context) (none T, err error) { return none, errors.New("not available from this daemon") }
}
