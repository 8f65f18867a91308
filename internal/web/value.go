package web

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"zkelectd/internal/cluster"
)

// valueResponse is the response of /v1/value. Accepted is the value that will be published.
type valueResponse struct {
	stamp
	Accepted string `json:"accepted"`
}

// publishValue makes the body what the leader's work publishes, for clients of the unix socket, which may also have
// application leases.
func (a *api) publishValue(w http.ResponseWriter, r *http.Request, g *Group) {
	if conn := connOf(r); conn == nil || conn.peer == nil {
		closeAfterResponse(w, r)
		a.fail(w, http.StatusForbidden, g, "values are published by programs on this host only: use the unix socket "+
			"(http.listen: unix:PATH)")
		return
	}
	value, code, err := readValue(w, r)
	if err != nil {
		a.fail(w, code, g, err.Error())
		return
	}
	term := int64(0)
	if query, err := url.ParseQuery(r.URL.RawQuery); err != nil || query.Has("term") {
		if term, err = strconv.ParseInt(query.Get("term"), 10, 64); err != nil || term < 1 {
			a.fail(w, http.StatusBadRequest, g, "term must be the fencing token of the work")
			return
		}
	}
	if !a.requireLoop(w, g) {
		return
	}
	if err := g.PublishValue(term, value); err != nil {
		a.fail(w, http.StatusConflict, g, err.Error())
		return
	}
	a.respond(w, http.StatusAccepted, valueResponse{stampOf(g.view()), value})
}

// readValue reads the value in a body. With an error it returns the status for it.
func readValue(w http.ResponseWriter, r *http.Request) (value string, code int, err error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, cluster.MaxValue))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return "", http.StatusRequestEntityTooLarge, fmt.Errorf("the value has more than %d bytes", cluster.MaxValue)
	case err != nil:
		return "", http.StatusBadRequest, errors.New("the body did not arrive completely")
	case !utf8.Valid(body) || strings.ContainsFunc(string(body), unicode.IsControl):
		return "", http.StatusBadRequest, errors.New("the value must be UTF-8 without control characters")
	}
	return string(body), 0, nil
}
