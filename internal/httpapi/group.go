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

// maxAskers bounds the requests about the group that are answered at once, clientAskers those of one address; lastTerms is how
// many terms are shown by default.
const (
	maxAskers    = 8
	clientAskers = 4
	lastTerms    = 20
)

// bounded limits concurrent expensive reads.
func (a *api) bounded(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		from := sourceOf(r)
		if !a.askers.take(from) {
			w.Header().Set("Retry-After", "1")
			a.respond(w, http.StatusServiceUnavailable, a.refusal("too many requests about the group at once, in all or from "+from.address))
			return
		}
		defer a.askers.give(from)
		serve(w, r)
	}
}

// whole is the daemon's view, with the group as far as it can be had.
type whole struct {
	status.Response
	Group *status.Group `json:"group,omitempty"`
	// GroupError says why there is no group.
	GroupError string `json:"group_error,omitempty"`
}

// status shows all of it, also where it is stale: then with 503, so that no program takes it for the truth.
func (a *api) status(w http.ResponseWriter, r *http.Request) {
	v := a.opt.View()
	body, code := whole{Response: v.Response()}, http.StatusOK
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

type terms struct {
	stamp
	Terms []cluster.PastTerm `json:"terms"`
}

// history shows the last terms, oldest first: ?n= how many.
func (a *api) history(w http.ResponseWriter, r *http.Request) {
	n, err := number(r, "n", lastTerms)
	if err != nil {
		a.respond(w, http.StatusBadRequest, a.refusal(err.Error()))
		return
	}
	if all, ok := a.past(w, r); ok {
		last := all[max(0, len(all)-int(min(n, cluster.MaxHistory))):]
		a.respond(w, http.StatusOK, terms{stampOf(a.opt.View()), append([]cluster.PastTerm{}, last...)})
	}
}

// past reads the history, or answers why it can't be read.
func (a *api) past(w http.ResponseWriter, r *http.Request) ([]cluster.PastTerm, bool) {
	if !a.turns(w) {
		return nil, false
	}
	all, err := a.opt.History(r.Context())
	if err != nil {
		a.respond(w, http.StatusServiceUnavailable, a.refusal(err.Error()))
	}
	return all, err == nil
}

// turns answers for a loop that is stuck.
func (a *api) turns(w http.ResponseWriter) bool {
	err := a.opt.View().CheckLoop()
	if err != nil {
		a.respond(w, http.StatusServiceUnavailable, a.refusal(err.Error()))
	}
	return err == nil
}

type explained struct {
	stamp
	// Explanation is of now, Past of a term of the history.
	Explanation *whatif.Explanation `json:"explanation,omitempty"`
	Past        *cluster.PastTerm   `json:"past,omitempty"`
}

// explain says why the leader is the leader: ?term= of which term, by default of now.
func (a *api) explain(w http.ResponseWriter, r *http.Request) {
	term, err := number(r, "term", 0)
	switch {
	case err != nil:
		a.respond(w, http.StatusBadRequest, a.refusal(err.Error()))
	case term != 0:
		a.explainPast(w, r, term)
	case a.turns(w):
		e, err := a.opt.Explain(r.Context())
		if err != nil {
			a.respond(w, http.StatusServiceUnavailable, a.refusal(err.Error()))
			return
		}
		a.respond(w, http.StatusOK, explained{stamp: stampOf(a.opt.View()), Explanation: &e})
	}
}

func (a *api) explainPast(w http.ResponseWriter, r *http.Request, term int64) {
	all, ok := a.past(w, r)
	if !ok {
		return
	}
	i := slices.IndexFunc(all, func(t cluster.PastTerm) bool { return t.Term == term })
	if i < 0 {
		a.respond(w, http.StatusNotFound, a.refusal(fmt.Sprintf("term %d is not in the history", term)))
		return
	}
	a.respond(w, http.StatusOK, explained{stamp: stampOf(a.opt.View()), Past: &all[i]})
}

// number is a parameter of the query, 1 or more.
func number(r *http.Request, name string, otherwise int64) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s: %q is not a number from 1 on", name, text)
	}
	return n, nil
}

// known answers for a question that nobody can answer.
func known[T any](ask func(context.Context) (T, error)) func(context.Context) (T, error) {
	if ask != nil {
		return ask
	}
	return func(context.Context) (none T, err error) { return none, errors.New("this daemon does not know") }
}
