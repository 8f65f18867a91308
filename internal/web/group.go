package web

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator/status"
)

// maxGroupReads limits concurrent requests about groups; maxClientGroupReads those of one address. defaultTerms is how
// many terms /v1/history returns by default.
const (
	maxGroupReads       = 8
	maxClientGroupReads = 4
	defaultTerms        = 20
)

// groupReads are the requests that a.groupQuota limits.
const groupReads = "requests about groups"

// limitGroupReads limits concurrent requests about groups, which are expensive.
func (a *api) limitGroupReads(serve groupHandler) groupHandler {
	return func(w http.ResponseWriter, r *http.Request, g *Group) {
		if !a.acquire(w, r, a.groupQuota, g, groupReads) {
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

// status responds with the daemon's view and the group. If the view is stale, the status is 503, so that no program
// relies on it.
func (a *api) status(w http.ResponseWriter, r *http.Request, g *Group) {
	v := g.view()
	body, code := statusResponse{Response: v.Response()}, http.StatusOK
	switch err := v.CheckLoop(); {
	case err != nil:
		code, body.GroupError = http.StatusServiceUnavailable, err.Error()
	default:
		if whole, err := g.Group(r.Context()); err != nil {
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
		a.fail(w, http.StatusBadRequest, g, err.Error())
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
	all, err := g.History(r.Context())
	if err != nil {
		a.fail(w, http.StatusServiceUnavailable, g, err.Error())
	}
	return all, err == nil
}

// requireLoop returns true if the daemon's event loop is not stuck. Otherwise it responds with the reason.
func (a *api) requireLoop(w http.ResponseWriter, g *Group) bool {
	err := g.view().CheckLoop()
	if err != nil {
		a.fail(w, http.StatusServiceUnavailable, g, err.Error())
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

// explain responds with the reasons for the choice of the leader. The parameter term is the term; the default is the
// current one.
func (a *api) explain(w http.ResponseWriter, r *http.Request, g *Group) {
	term, err := queryNumber(r, "term", 0)
	switch {
	case err != nil:
		a.fail(w, http.StatusBadRequest, g, err.Error())
	case term != 0:
		a.explainPast(w, r, g, term)
	case a.requireLoop(w, g):
		e, err := g.Explain(r.Context())
		if err != nil {
			a.fail(w, http.StatusServiceUnavailable, g, err.Error())
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
		a.fail(w, http.StatusNotFound, g, fmt.Sprintf("term %d is not in the history", term))
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

// groups responds with all groups of the daemon, from its views. With members=1, the response also has the members of
// each group, which the daemon reads from time to time while someone asks.
func (a *api) groups(w http.ResponseWriter, r *http.Request) {
	groups := a.opt.Groups()
	readings := make(map[string]groupReading)
	if r.URL.Query().Get("members") == "1" {
		if !a.acquire(w, r, a.groupQuota, nil, groupReads) {
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
			maps.Copy(sites, reading.lostAt)
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

const (
	// maxMemberReads limits concurrent reads of groups for /v1/groups, and membersTimeout how long a request waits for
	// them.
	maxMemberReads = 4
	membersTimeout = 2 * time.Second
)

// membersInterval returns how old the members of a group may be. Together the groups are read at most 50 times a
// second, however many clients ask.
func membersInterval(groups int) time.Duration {
	return max(3*time.Second, time.Duration(groups)*20*time.Millisecond)
}

// groupReading is what the daemon last read about a whole group, in short.
type groupReading struct {
	// Leader holds leadership, or is to take it over, as State says; see [status.Group].
	Leader string `json:"leader,omitempty"`
	State  string `json:"state,omitempty"`
	// Members are sorted by node.
	Members  []gridMember `json:"members"`
	Problems []string     `json:"problems,omitempty"`
	// Severity says what the users of the work suffer, and Reasons why. Lost are the nodes that are lost.
	Severity status.Severity `json:"severity"`
	Reasons  []string        `json:"severity_reasons,omitempty"`
	Lost     []string        `json:"lost,omitempty"`
	lostAt   map[string]string
	// Error is why the last attempt to read the group failed. The rest is older then.
	Error string `json:"error,omitempty"`
	// Age is the age of the members, filled in for each response.
	Age cluster.Duration `json:"age"`
	at  time.Time
	// tried is when it was last tried.
	tried time.Time
}

// gridMember is a member of a group.
type gridMember struct {
	Node  string   `json:"node"`
	Roles []string `json:"roles,omitempty"`
	// Health is why the member is not eligible; empty if it may be.
	Health string `json:"health,omitempty"`
	site   string
}

// memberCache keeps the readings of all groups for /v1/groups. It reads only during requests, one refresh at a time.
type memberCache struct {
	busy     chan struct{} // holds one value during a refresh
	mu       sync.Mutex
	readings map[string]groupReading
}

func newMemberCache() *memberCache {
	return &memberCache{busy: make(chan struct{}, 1), readings: make(map[string]groupReading)}
}

// read returns the readings by name. It first refreshes those that are too old, unless another request does so and
// there is a reading of each group: while ZooKeeper does not answer, a few requests that wait would use up the quota
// of all.
func (c *memberCache) read(ctx context.Context, groups []*Group) map[string]groupReading {
	ctx, cancel := context.WithTimeout(ctx, membersTimeout)
	defer cancel()
	select {
	case c.busy <- struct{}{}:
		c.refresh(ctx, groups)
		<-c.busy
	default:
		if c.complete(groups) {
			break
		}
		select {
		case c.busy <- struct{}{}:
			c.refresh(ctx, groups)
			<-c.busy
		case <-ctx.Done():
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.readings)
}

func (c *memberCache) complete(groups []*Group) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.ContainsFunc(groups, func(g *Group) bool { _, ok := c.readings[g.Name]; return !ok })
}

// refresh reads the groups that are due, the oldest first, until ctx ends.
func (c *memberCache) refresh(ctx context.Context, groups []*Group) {
	var readers errgroup.Group
	readers.SetLimit(maxMemberReads)
	for _, g := range c.due(groups) {
		if ctx.Err() != nil {
			break
		}
		readers.Go(func() error {
			began := time.Now()
			whole, err := g.Group(ctx)
			// If its time was cut short, that says nothing about the group. But a slow group must go to the end of the queue.
			if err == nil || ctx.Err() == nil || time.Since(began) > membersTimeout/2 {
				c.store(g.Name, whole, err)
			}
			return nil
		})
	}
	readers.Wait()
}

// due returns the groups to read, and forgets groups that no longer exist.
func (c *memberCache) due(groups []*Group) []*Group {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := make(map[string]bool)
	var due []*Group
	for _, g := range groups {
		known[g.Name] = true
		if time.Since(c.readings[g.Name].tried) >= membersInterval(len(groups)) {
			due = append(due, g)
		}
	}
	maps.DeleteFunc(c.readings, func(name string, _ groupReading) bool { return !known[name] })
	slices.SortStableFunc(due, func(a, b *Group) int { return c.readings[a.Name].tried.Compare(c.readings[b.Name].tried) })
	return due
}

func (c *memberCache) store(name string, g status.Group, err error) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		r := c.readings[name]
		r.Error, r.tried = err.Error(), now
		if r.Members == nil {
			r.Members, r.at = []gridMember{}, now
		}
		c.readings[name] = r
		return
	}
	r := groupReading{Leader: g.Leader, State: g.State, Problems: g.Problems, Severity: g.Severity, Reasons: g.Reasons,
		Lost: status.Lost(g.Absent), Members: []gridMember{}, at: now, tried: now}
	r.lostAt = make(map[string]string)
	for _, m := range g.Absent {
		if slices.Contains(r.Lost, m.Node) {
			r.lostAt[m.Node] = m.Site
		}
	}
	for _, m := range g.Members {
		member := gridMember{Node: m.Node, Roles: m.Roles, site: m.Site}
		if !m.IsEligible() {
			member.Health = m.Eligible
		}
		r.Members = append(r.Members, member)
	}
	slices.SortFunc(r.Members, func(a, b gridMember) int { return cluster.CompareNodes(a.Node, b.Node) })
	c.readings[name] = r
}

func compareHosts(a, b gridHost) int {
	return cmp.Or(strings.Compare(a.Site, b.Site), cluster.CompareNodes(a.Node, b.Node))
}
