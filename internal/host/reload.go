package host

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/zk"
)

// Reloaded is a configuration that was read again.
type Reloaded struct {
	config.Reloaded
	// Files lists the settings whose files have changed.
	Files []string
	// Commit applies the settings outside the host (tokens, allowed hosts). It is called with the configuration in
	// force once it is accepted; nil for none.
	Commit func(config.Host)
}

// reloadResult is the result of the last reload, for the node's record.
type reloadResult struct {
	count   int64  // how many reloads there were
	refused string // why it was refused
	text    string // what it changed
}

// serveReloads reloads the configuration on each request until ctx ends, without blocking an event loop. It begins when
// the groups have registered, because only a member can publish a policy.
func (h *Host) serveReloads(ctx context.Context, s *session) {
	select {
	case <-s.ready:
	case <-ctx.Done():
		return
	}
	for {
		select {
		case <-h.reloads:
			h.reload(ctx, s)
		case <-h.left:
			h.addHeldBack()
		case <-ctx.Done():
			return
		}
	}
}

// reload reads the configuration again and applies it. It refuses the whole configuration if its main file is
// invalid, if its servers are not those of the group or if ZooKeeper does not know its credentials, and the
// configuration of a group if that is invalid or its policy cannot be published.
func (h *Host) reload(ctx context.Context, s *session) {
	h.reloading.Lock()
	defer h.reloading.Unlock()
	order := h.takeOrder()
	h.service.reloading()
	next, err := h.read(order.AllowRemovals)
	var identities *zk.CredentialChange
	var published map[string]operator.PublishedPolicy
	if err == nil {
		err = h.checkServers(ctx, s, next)
	}
	if err == nil {
		identities, err = h.checkCredentials(ctx, s, next)
	}
	if err == nil {
		err = h.checkContainment(next.Host)
	}
	if err == nil {
		published, err = h.publishPolicies(ctx, s, &next)
	}
	if err != nil && s.zk.Err() != nil {
		<-ctx.Done() // not refused: the memberships end with the session
	}
	if ctx.Err() != nil {
		h.ask(order) // the next session repeats it
		return
	}
	result := ReloadResult{Node: h.Node(), Single: h.single()}
	if err != nil {
		h.refuse(err)
		result.Refused = err.Error()
	} else {
		h.counters.Update(func(t *status.Totals) {
			if t.ReloadFailed = len(next.Refused) > 0; !t.ReloadFailed {
				t.Reloaded = time.Now()
			}
		})
		if identities.Apply(); identities.Changed {
			next.Files = append(next.Files, "zookeeper.auth.file")
			h.log.Info("the credentials for ZooKeeper have changed", "identities", s.zk.Tags())
		}
		result.Groups = h.accept(s, next)
		describePublications(result.Groups, published)
	}
	h.service.ready(h.line())
	if len(order.answers) > 0 {
		h.describeBlocked(ctx, result.Groups)
	}
	for _, answer := range order.answers {
		answer <- result
	}
}

// refuse records, for all groups, that the reload was refused.
func (h *Host) refuse(err error) {
	logRefused(h, "the running configuration stays", err)
	h.counters.Update(func(t *status.Totals) { t.ReloadFailed = true })
	for _, r := range h.resources() {
		r.reloaded(reloadResult{refused: err.Error()})
		r.apply(h.memberOf(r), false)
	}
}

func logRefused(h *Host, what string, err error, attrs ...any) {
	var invalid config.Errors
	if !errors.As(err, &invalid) {
		h.log.Error("reload refused, "+what, append(attrs, "err", err)...)
	}
	for _, f := range invalid {
		h.log.Error("reload refused, "+what, append(attrs, "err", f)...)
	}
}

// memberOf returns the membership of a group in the current session; nil if there is none.
func (h *Host) memberOf(r *resource) *membership {
	h.mu.Lock()
	s := h.session
	h.mu.Unlock()
	if s == nil {
		return nil
	}
	return s.member(r)
}

// read reads the configuration again.
func (h *Host) read(allowRemovals bool) (Reloaded, error) {
	if h.opt.Reload == nil {
		return Reloaded{}, errors.New("this daemon has no configuration to read again")
	}
	return h.opt.Reload(*h.inForce.Load(), allowRemovals)
}

// checkCredentials checks that ZooKeeper accepts the credentials of a configuration.
func (h *Host) checkCredentials(ctx context.Context, s *session, next Reloaded) (*zk.CredentialChange, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*s.granted)
	defer cancel()
	paths := cluster.Paths{Root: next.Host.Config.ZooKeeper.Root} // above all groups
	if all := h.resources(); len(all) > 0 {
		paths = all[0].paths()
	}
	return s.zk.PresentCredentials(ctx, paths, operator.Access(next.Host.Config, os.Getenv))
}

// resource returns what the file with that name describes; nil if there is none.
func (h *Host) resource(name string) *resource {
	all := h.resources()
	i, found := slices.BinarySearchFunc(all, name,
		func(r *resource, name string) int { return strings.Compare(r.name, name) })
	if !found {
		return nil
	}
	return all[i]
}

// accept applies a configuration: to the host, then to its groups. It returns the results of the groups.
func (h *Host) accept(s *session, next Reloaded) []GroupReload {
	before := h.config()
	after := next.Host
	after.Config, after.Groups = config.ApplyReload(before, next.Host.Config), slices.Clone(next.Host.Groups)
	for i, c := range after.Groups {
		if r := h.resource(c.Name); r != nil {
			after.Groups[i].Config = r.reloadable(c.Config)
		} else { // added: what needs a restart stays as it is for the whole host
			after.Groups[i].Config = after.Config.WithGroup(c.Config)
		}
	}
	if next.Commit != nil {
		next.Commit(after) // before anything shows it: a crash must not undo what others have seen
	}
	h.applyHost(before, next.Host.Config, after.Config)
	now, was := after.Config.ZooKeeper, before.ZooKeeper
	auditACLs := now.Auth != was.Auth || now.ACL != was.ACL || !slices.Equal(now.Identities, was.Identities)
	var results []GroupReload
	for _, name := range slices.Sorted(maps.Keys(next.Refused)) {
		logRefused(h, "the group stays as it is", next.Refused[name], "group", name)
		if h.resource(name) == nil {
			results = append(results, GroupReload{Name: name, Refused: next.Refused[name].Error()})
		}
	}
	for _, r := range h.resources() {
		if !slices.ContainsFunc(after.Groups, func(c config.Group) bool { return c.Name == r.name }) {
			h.removeGroup(r)
			results = append(results, GroupReload{Name: r.name, Removed: true})
		}
	}
	for i, c := range next.Host.Groups {
		r := h.resource(c.Name)
		if r == nil {
			result := GroupReload{Name: c.Name, Changed: "added"}
			if !h.addGroup(after.Groups[i]) {
				result.Changed = "is added once this host has left the group that was removed"
			}
			results = append(results, result)
			continue
		}
		r.accept(h.memberOf(r), c.Config, after.Groups[i].Config, next, auditACLs)
		last := r.lastReload.Load()
		results = append(results, GroupReload{Name: c.Name, Changed: last.text, Refused: last.refused})
	}
	h.inForce.Store(&after)
	if auditACLs || !slices.Equal(now.Servers, was.Servers) {
		h.applyAccess(s)
	}
	signal(h.recheck)
	signal(h.following.changed)
	h.setInvalid(next.Refused)
	return results
}

// applyHost applies the settings of the host, and logs which ones need a restart.
func (h *Host) applyHost(before, next, after config.Config) {
	changed, restart := config.Diff(before, next)
	h.setPending(restart)
	if len(restart) > 0 {
		h.log.Warn("these settings need a restart", "keys", strings.Join(restart, ", "))
	}
	if len(changed) > 0 && !h.single() { // else logged with the settings of its group
		h.log.Info("reloaded", "keys", strings.Join(changed, ", "))
	}
	if h.opt.Level != nil {
		h.opt.Level.UnmarshalText([]byte(after.Log.Level)) // checked with the configuration
	}
}

// setPending records which settings need a restart.
func (h *Host) setPending(keys []string) {
	text := strings.Join(keys, ", ")
	h.pending.Store(&text)
	h.counters.Update(func(t *status.Totals) { t.Pending = len(keys) })
}

// reloadable returns the configuration that is in force once next is applied to the group.
func (r *resource) reloadable(next config.Config) config.Config {
	after := config.ApplyReload(r.config(), next)
	if !r.host.single() {
		after = after.WithGroup(next)
	}
	return after
}

// accept makes a configuration the one in force for the group, or records why it was refused. next is what the files
// say.
func (r *resource) accept(m *membership, next, after config.Config, of Reloaded, auditACLs bool) {
	before, refused := r.config(), of.Refused[r.name]
	changed, restart := config.Diff(before, next)
	var later []string
	if !r.host.single() {
		// by the next instance
		later = slices.DeleteFunc(slices.Clone(restart), func(key string) bool { return !config.IsGroupKey(key) })
		restart = slices.DeleteFunc(restart, config.IsGroupKey)
	}
	for _, key := range of.Files {
		if !slices.Contains(changed, key) {
			changed = append(changed, key)
		}
	}
	result := reloadResult{text: difference(changed, later, restart)}
	if refused != nil {
		result = reloadResult{refused: refused.Error()}
	}
	r.inForce.Store(&after)
	r.reloaded(result)
	for _, g := range r.all() {
		g.leaders.reconsider()
		if src := g.conn.Load(); src != nil {
			g.cache.SetSource(&operator.Source{Session: src, Paths: g.paths, Config: after, Neighbors: g.neighbors()})
		}
	}
	switch {
	case refused != nil:
	case len(changed) > 0:
		r.log.Info("reloaded", "keys", strings.Join(changed, ", "))
	case r.host.single():
		r.log.Info("reloaded, no setting has changed")
	}
	if len(later) > 0 {
		r.log.Info("these settings are applied as soon as this host does not lead the group", "keys",
			strings.Join(later, ", "))
		if m != nil {
			m.outdated.Store(true)
		}
	}
	if before.Failsafe.Enabled != after.Failsafe.Enabled && m != nil {
		r.log.Info("this host takes part in failsafe mode, or no longer does, as soon as it does not lead the group",
			"failsafe.enabled", after.Failsafe.Enabled)
		m.outdated.Store(true)
	}
	r.apply(m, auditACLs)
}

// reloaded records the result of a reload.
func (r *resource) reloaded(result reloadResult) {
	result.count = r.lastReload.Load().count + 1
	r.lastReload.Store(&result)
}

// apply applies the settings in force to the group's member, and makes a group without one try again to register.
func (r *resource) apply(m *membership, auditACLs bool) {
	if m == nil {
		return // the next session registers with them
	}
	if i := m.instance(); i != nil {
		r.applyTo(i, auditACLs) // if it ends, the next one registers with them
		return
	}
	signal(m.retry)
}

// applyTo applies the settings in force to an instance. One call follows the other: an older one does not undo a newer.
func (r *resource) applyTo(i *instance, auditACLs bool) {
	r.applying.Lock()
	defer r.applying.Unlock()
	i.Apply(r.settings(), auditACLs)
}

// difference returns a description of the changes that a reload has made.
func difference(changed, later, restart []string) string {
	text := NothingChanged
	if len(changed) > 0 {
		text = "applied: " + strings.Join(changed, ", ")
	}
	if len(later) > 0 {
		text += "; as soon as this host does not lead: " + strings.Join(later, ", ")
	}
	if len(restart) > 0 {
		text += "; a restart is needed for " + strings.Join(restart, ", ")
	}
	return text
}

// ReloadRequest says what a reload may do.
type ReloadRequest struct {
	// AllowRemovals permits that the files of any number of groups are gone.
	AllowRemovals bool
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
	// Removed is set if the host leaves the group, which it does once its work there has ended.
	Removed bool `json:"removed,omitempty"`
	// Published are lines about what has changed in the policy in force. Unpublished are lines about where the policy
	// of the file is not the one in force, and was not published, because the file has not changed there.
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
	if r.AllowRemovals && h.single() {
		return ReloadResult{}, errors.New("--allow-removals has no effect without groups_dir")
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
	h.order.AllowRemovals = h.order.AllowRemovals || o.AllowRemovals
	h.order.answers = append(h.order.answers, o.answers...)
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
			Conn: conn, Paths: r.paths(), Slots: g.paths.Slot != "", Config: r.config(), Neighbors: g.neighbors(),
			Read: operator.ReadTimeout, Write: conn.Timeout(),
		}
		if q, err := submitter.Question(ctx); err == nil {
			results[i].Blocked = operator.DescribeBlocked(q)
		}
	}
}
