package web

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/request"
)

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
