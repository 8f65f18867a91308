package web

import (
	"net/http"
	"slices"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
)

// groupsResponse is the response of /v1/groups.
type groupsResponse struct {
	stamp
	Groups []listedGroup `json:"groups"`
	// Hosts are the members of all groups; only with the parameter members.
	Hosts []gridHost `json:"hosts,omitempty"`
}

// listedGroup is one of the groups. Read is only set with the parameter members.
type listedGroup struct {
	status.Summary
	Read *groupReading `json:"read,omitempty"`
}

// gridHost is a host in the response of /v1/groups.
type gridHost struct {
	Node string `json:"node"`
	Site string `json:"site,omitempty"`
}

// groups responds with all groups of the daemon, from its views. With members=1, the response also has the members of each group,
// which the daemon reads from time to time while someone asks.
func (a *api) groups(w http.ResponseWriter, r *http.Request) {
	groups := a.opt.Groups()
	readings := make(map[string]groupReading)
	if r.URL.Query().Get("members") == "1" {
		if !a.acquireGroupRead(w, r, a.newFailure) {
			return
		}
		defer a.groupQuota.release(clientOf(r))
		readings = a.members.read(r.Context(), groups)
	}
	body := groupsResponse{stamp: a.stamp(), Groups: []listedGroup{}}
	sites := make(map[string]string)
	for _, g := range groups {
		listed := listedGroup{Summary: g.view().Summary()}
		if reading, ok := readings[g.Name]; ok {
			reading.Age = cluster.Duration(time.Since(reading.at))
			listed.Read = &reading
			for _, m := range reading.Members {
				sites[m.Node] = m.site
			}
		}
		body.Groups = append(body.Groups, listed)
	}
	for node, site := range sites {
		body.Hosts = append(body.Hosts, gridHost{node, site})
	}
	slices.SortFunc(body.Hosts, compareHosts)
	a.respond(w, http.StatusOK, body)
}

// acquireGroupRead takes a slot for a request about groups, which are expensive. If none is free, it responds with a failure and
// returns false. Otherwise the caller must release it.
func (a *api) acquireGroupRead(w http.ResponseWriter, r *http.Request, newFailure func(why string) failureResponse) bool {
	from := clientOf(r)
	if a.groupQuota.acquire(from) {
		return true
	}
	w.Header().Set("Retry-After", "1")
	a.respond(w, http.StatusServiceUnavailable, newFailure("too many concurrent requests about groups, in total or from "+from.address))
	return false
}
