package host

import (
	"context"
	"errors"

	"zkelectd/internal/operator"
)

// ReloadRequest says what a reload may do.
type ReloadRequest struct {
	// AllowRemovals permits that the files of any number of groups are gone. Force publishes the policy of the only
	// group, even if no member is eligible under it.
	AllowRemovals, Force bool
}

// ReloadResult is what a reload has resulted in.
type ReloadResult struct {
	Node string `json:"node"`
	// Single is set for a host with one group, without a directory of groups.
	Single bool `json:"single,omitempty"`
	// Refused is why everything was refused; else Groups has the results of the groups.
	Refused string        `json:"refused,omitempty"`
	Groups  []GroupReload `json:"groups,omitempty"`
}

// GroupReload is what a reload has resulted in for one group: either why its configuration was refused, or what has
// changed, in words.
type GroupReload struct {
	Name    string `json:"group"`
	Refused string `json:"refused,omitempty"`
	Changed string `json:"changed,omitempty"`
	// Removed is set if the host has left the group.
	Removed bool `json:"removed,omitempty"`
	// Published are lines about what has changed in the policy in force. Unpublished are lines about where the policy of the file is not
	// the one in force, and was not published, because the file has not changed there.
	Published   []string `json:"published,omitempty"`
	Unpublished []string `json:"unpublished,omitempty"`
	// Blocked are lines about what holds a better member back.
	Blocked []string `json:"blocked,omitempty"`
}

// NothingChanged is GroupReload.Changed of a group without changes.
const NothingChanged = "no setting has changed"

// reloadOrder is what one reload is asked for by all who ask before it begins.
type reloadOrder struct {
	ReloadRequest
	answers []chan<- ReloadResult // each takes one result without waiting
}

// Reload makes the host reload its configuration.
func (h *Host) Reload() { h.ask(reloadOrder{}) }

// ReloadAllowingRemovals is Reload with AllowRemovals.
func (h *Host) ReloadAllowingRemovals() {
	h.ask(reloadOrder{ReloadRequest: ReloadRequest{AllowRemovals: true}})
}

// ReloadWith makes the host reload its configuration, and returns the result. It waits for a session with ZooKeeper,
// unless the configuration is invalid.
func (h *Host) ReloadWith(ctx context.Context, r ReloadRequest) (ReloadResult, error) {
	switch {
	case r.AllowRemovals && h.single():
		return ReloadResult{}, errors.New("--allow-removals has no effect without groups_dir")
	case r.Force && !h.single():
		return ReloadResult{}, errors.New("--force is for a daemon with one group: publish the policy of the group with policy --apply --force -g")
	}
	if err := h.checkWithoutSession(r); err != nil {
		return ReloadResult{Node: h.Node(), Single: h.single(), Refused: err.Error()}, nil
	}
	answer := make(chan ReloadResult, 1)
	h.ask(reloadOrder{r, []chan<- ReloadResult{answer}})
	select {
	case result := <-answer:
		return result, nil
	case <-ctx.Done():
		return ReloadResult{}, ctx.Err()
	}
}

// checkWithoutSession refuses an invalid configuration at once while there is no session to wait for.
func (h *Host) checkWithoutSession(r ReloadRequest) error {
	if !h.reloading.TryLock() {
		return nil // a reload is under way, and this one follows it
	}
	defer h.reloading.Unlock()
	h.mu.Lock()
	s := h.session
	h.mu.Unlock()
	if s != nil && s.isReady() {
		return nil
	}
	_, err := h.read(r.AllowRemovals)
	if err != nil {
		h.refuse(err)
	}
	return err
}

// ask adds to what the next reload is asked for, and wakes serveReloads.
func (h *Host) ask(o reloadOrder) {
	h.mu.Lock()
	next := &h.order
	next.AllowRemovals, next.Force = next.AllowRemovals || o.AllowRemovals, next.Force || o.Force
	next.answers = append(next.answers, o.answers...)
	h.mu.Unlock()
	signal(h.reloads)
}

// takeOrder returns what the reload that begins is asked for.
func (h *Host) takeOrder() reloadOrder {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := h.order
	h.order = reloadOrder{}
	return o
}

// describeBlocked adds to the results of groups that have changed what holds a better member back there.
func (h *Host) describeBlocked(ctx context.Context, results []GroupReload) {
	for i := range results {
		r := h.resource(results[i].Name)
		if r == nil || results[i].Refused != "" || results[i].Changed == NothingChanged && !h.single() {
			continue
		}
		g := r.all()[0]
		conn := g.conn.Load()
		if conn == nil {
			continue
		}
		submitter := operator.Submitter{
			Conn: conn, Paths: r.paths(), Slots: g.paths.Slot != "", Config: r.config(), Neighbors: g.neighbors(), Read: operator.ReadTimeout, Write: conn.Timeout(),
		}
		if q, err := submitter.Question(ctx); err == nil {
			results[i].Blocked = operator.DescribeBlocked(q)
		}
	}
}
