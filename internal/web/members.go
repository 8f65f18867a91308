package web

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
)

const (
	// maxMemberReads limits concurrent reads of groups for /v1/groups, and membersTimeout how long a request waits for them.
	maxMemberReads = 4
	membersTimeout = 2 * time.Second
)

// membersInterval returns how old the members of a group may be. Together the groups are read at most 50 times a second, however
// many clients ask.
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

// read returns the readings by name. It first refreshes those that are too old, unless another request does so and there is a
// reading of each group.
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
			whole, err := ask(ctx, g.Group)
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
	r := groupReading{Leader: g.Leader, State: g.State, Problems: g.Problems, Members: []gridMember{}, at: now, tried: now}
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
