package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
	"zkelectd/internal/work/hook"
)

// fleetOf is a host with several groups, whose configuration is a directory.
type fleetOf struct {
	*Host
	t    *testing.T
	dir  string
	base string
	src  config.Sources
}

// write writes the file of a group.
func (f *fleetOf) write(name, content string) {
	f.t.Helper()
	put(f.t, filepath.Join(f.dir, "groups", name+".yaml"), content)
}

func (f *fleetOf) remove(name string) {
	f.t.Helper()
	if err := os.Remove(filepath.Join(f.dir, "groups", name+".yaml")); err != nil {
		f.t.Fatal(err)
	}
}

// view returns the view of a group; zero if the host has no such group.
func (f *fleetOf) view(name string) status.Daemon {
	if g := f.group(name); g != nil {
		return g.View()
	}
	return status.Daemon{}
}

func (f *fleetOf) until(name, what string, ok func(status.Daemon) bool) {
	f.t.Helper()
	wait(f.t, name+": "+what, func() bool { return ok(f.view(name)) }, func() string { return fmt.Sprintf("the view is %+v", f.view(name)) })
}

// work is the file of a group.
const (
	work       = "child: {command: [sleep, '1000'], stop_timeout: 400ms}\n"
	promotable = "child: {command: [sleep, '1000'], stop_timeout: 400ms, promote: {exec: ['true']}, demote: {exec: ['true']}}\n"
)

// runGroups starts a host with the new groups g0, g1, ... below base.
func runGroups(t *testing.T, base, id string, n int, opt ...func(*Options)) *fleetOf {
	t.Helper()
	initializeAll(t, base, n)
	return joinGroups(t, base, id, n, opt...)
}

// joinGroups is runGroups for groups that exist.
func joinGroups(t *testing.T, base, id string, n int, opt ...func(*Options)) *fleetOf {
	t.Helper()
	return joinGroupsOf(t, base, id, n, work, opt...)
}

// joinGroupsOf is joinGroups for groups with these settings.
func joinGroupsOf(t *testing.T, base, id string, n int, settings string, opt ...func(*Options)) *fleetOf {
	t.Helper()
	f := &fleetOf{t: t, dir: t.TempDir(), base: base}
	if err := os.Mkdir(filepath.Join(f.dir, "groups"), 0o700); err != nil {
		t.Fatal(err)
	}
	main := fmt.Sprintf("node: {id: %s}\nzookeeper: {servers: [%q], root: %s, session_timeout: 10s}\ngroups_dir: %s\n",
		id, server.Addr(), base, filepath.Join(f.dir, "groups"))
	file := filepath.Join(f.dir, "zkelectd.yaml")
	put(t, file, main)
	for i := range n {
		name := fmt.Sprint("g", i)
		f.write(name, settings)
	}
	f.src = config.Sources{File: file}
	c, err := config.LoadHost(f.src)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Config: c, Log: slog.New(slog.DiscardHandler), Guard: guardClient, Create: true,
		Reload: func(running config.Host, _ bool) (Reloaded, error) {
			r, err := config.ReloadHost(f.src, running, false)
			return Reloaded{Reloaded: r}, err
		},
	}
	for _, change := range opt {
		change(&o)
	}
	f.Host = New(o)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := f.Run(context.Background()); err != nil {
			t.Errorf("%s ended with %v", id, err)
		}
	}()
	t.Cleanup(func() {
		f.Stop("the test is over")
		<-ended
	})
	return f
}

// initializeAll creates the groups g0, g1, ... below base, so that their first leaders need not wait.
func initializeAll(t *testing.T, base string, n int) {
	t.Helper()
	conn := initialSession(t)
	for i := range n {
		if err := store.Init(t.Context(), conn, cluster.Paths{Root: fmt.Sprint(base, "/g", i)}, "the test"); err != nil {
			t.Fatal(err)
		}
	}
}

// Several groups share a session, and the limits of the host. Reloads add, change and remove groups, and no group disturbs another.
func TestGroupsShareASession(t *testing.T) {
	base := fresh()
	f := runGroups(t, base, "a", 3)
	for i := range 3 {
		f.until(fmt.Sprint("g", i), "leads", status.Daemon.Leads)
	}
	kept := f.view("g0")
	for range maxMoves {
		f.running("g0").moves.Request(func() {})
	}
	if f.running("g1").moves.Request(func() {}).Granted() {
		t.Error("the groups do not share the limit of moves")
	}

	f.remove("g2")
	f.write("g3", work)
	f.write("g1", "child: {command: [sleep, '1001'], stop_timeout: 400ms}\nnode: {priority: 7}\n")
	initialize(t, base+"/g3")
	f.Reload()
	f.until("g3", "is added", status.Daemon.Leads)
	wait(t, "g2 is removed", func() bool { return f.group("g2") == nil })
	s := f.Host.session.zk
	for _, path := range []string{base + "/g2/nodes", base + "/g2/election"} {
		if names, _, err := s.Children(t.Context(), path, false); err != nil || len(names) > 0 {
			t.Errorf("%s has %v %v after LEAVE", path, names, err)
		}
	}
	data, stat, err := s.Get(t.Context(), base+"/g2/leader", false)
	if fence := cluster.ReadFence(base+"/g2/leader", data, stat, err == nil); fence.Record.State != cluster.FenceReleased {
		t.Errorf("the removed group has the fence %+v", fence.Record)
	}

	f.write("g2", work)
	f.Reload()
	f.until("g2", "is added again", status.Daemon.Leads)
	if v := f.view("g0"); v.Incarnation != kept.Incarnation || v.Term != kept.Term {
		t.Errorf("g0 was disturbed: %+v", v)
	}
	if n := f.Totals(); n.Sessions != 1 || n.SessionsLost != 0 {
		t.Errorf("it has counted %+v", n)
	}
}

// A group that a reload adds gets no setting that needs a restart, or this host would be another member there.
func TestAnAddedGroupHasTheHostsSettingsInForce(t *testing.T) {
	base := fresh()
	inForce := make(chan config.Host, 1)
	f := runGroups(t, base, "a", 1, func(o *Options) {
		read := o.Reload
		o.Reload = func(running config.Host, allow bool) (Reloaded, error) {
			r, err := read(running, allow)
			r.Commit = func(h config.Host) { inForce <- h }
			return r, err
		}
	})
	f.until("g0", "leads", status.Daemon.Leads)
	main, err := os.ReadFile(f.src.File)
	if err != nil {
		t.Fatal(err)
	}
	put(t, f.src.File, strings.Replace(string(main), "id: a", "id: z, site: dc7", 1))
	f.write("g1", "child: {command: [sleep, '1001'], stop_timeout: 400ms}\n")
	initialize(t, base+"/g1")
	f.Reload()
	f.until("g1", "leads", status.Daemon.Leads)
	for _, g := range (<-inForce).Groups {
		c := g.Config
		if c.Node.ID != "a" || c.Node.Site != "dc7" || c.ZooKeeper.Root != base+"/"+g.Name {
			t.Errorf("%s: %+v, %+v", g.Name, c.Node, c.ZooKeeper)
		}
		if now := f.resource(g.Name).config(); now.Node.ID != "a" {
			t.Errorf("%s runs as %s", g.Name, now.Node.ID)
		}
	}
	if names, _, err := initialSession(t).Children(t.Context(), base+"/g1/nodes", false); err != nil || !slices.Equal(names, []string{"a"}) {
		t.Errorf("g1 has the nodes %v, %v", names, err)
	}
}

// A reload applies the hooks of a group when the log says so: not before this host does not lead it.
func TestHooksAreAppliedWhenTheHostDoesNotLead(t *testing.T) {
	f := runGroups(t, "/base/hooks", "a", 1)
	f.until("g0", "it leads", func(v status.Daemon) bool { return v.State() == "leading" })
	g := f.group("g0")
	f.write("g0", strings.Replace(work, "child: {", "child: {env: {COLOR: red}, ", 1)+"hooks: {on_change: [changed], on_leader_change: [elected]}\n")
	f.Reload()
	wait(t, "the reload", func() bool { return len(g.config().Hooks.OnChange) > 0 })
	red := func(h hook.Hook) bool { return slices.Contains(h.Env, "COLOR=red") }
	if h := g.changeHook(); len(h.Argv) != 0 || red(h) {
		t.Errorf("on_change of the leader: %q", h.Argv)
	}
	if h := g.leaders.hook(); !slices.Equal(h.Argv, []string{"elected"}) || red(h) {
		t.Errorf("on_leader_change of the leader: %q", h.Argv)
	}
	g.instanceOptions() // as the next instance does
	if h := g.changeHook(); !slices.Equal(h.Argv, []string{"changed"}) || !red(h) {
		t.Errorf("on_change of the next instance: %q", h.Argv)
	}
}

// A group whose file is refused is shown, from the first start on, until its file is valid or gone.
func TestAnInvalidGroupIsShown(t *testing.T) {
	base := fresh()
	f := runGroups(t, base, "a", 1, func(o *Options) {
		o.RefusedGroups = map[string]error{"g1": errors.New("g1.yaml:1: child.command: is empty")}
	})
	refused := func(v status.Daemon) bool {
		return v.Membership == status.MembershipRefused && v.State() == status.MembershipRefused && strings.Contains(v.MembershipReason, "g1.yaml:1: child") && v.Root == base+"/g1"
	}
	f.until("g0", "leads", status.Daemon.Leads)
	f.until("g1", "is refused", refused)

	f.write("g1", "child: {command: 7}\n")
	f.Reload()
	f.until("g1", "stays refused", refused)
	initialize(t, base+"/g1")
	f.write("g1", work)
	f.Reload()
	f.until("g1", "leads", status.Daemon.Leads)

	f.write("g2", "nonsense")
	f.Reload()
	f.until("g2", "is refused", func(v status.Daemon) bool { return v.Membership == status.MembershipRefused })
	if _, waits := f.placement.elected["g2"]; waits {
		t.Error("electors of other groups wait until g2 has elected")
	}
	f.remove("g2")
	f.Reload()
	wait(t, "g2 is gone", func() bool { return f.group("g2") == nil })
	if v := f.view("g0"); !v.Leads() {
		t.Errorf("g0: %+v", v)
	}
}

// guardWithSurvivors is a guard that finds work of an earlier daemon in some groups.
type guardWithSurvivors struct {
	Guard
	survivors atomic.Pointer[[]string]
}

func (g *guardWithSurvivors) Survivors() []string { return *g.survivors.Load() }

// A host takes no part in a group while work of its dead daemon may run there: if it were elected, it would count an
// earlier holder on this node as proven dead.
func TestAHostTakesNoPartBesideASurvivor(t *testing.T) {
	guard := &guardWithSurvivors{Guard: guardClient}
	guard.survivors.Store(&[]string{"g0", "g1/3"})
	f := runGroups(t, fresh(), "a", 3, func(o *Options) { o.Guard = guard })
	f.until("g2", "leads", status.Daemon.Leads)
	conn := initialSession(t)
	for _, name := range []string{"g0", "g1"} {
		f.until(name, "is refused", func(v status.Daemon) bool {
			return v.Membership == status.MembershipRefused && v.MembershipReason == errSurvivor.Error()
		})
		if all, _, err := conn.Children(t.Context(), f.base+"/"+name+"/election", false); err != nil || len(all) > 0 {
			t.Errorf("%s has the members %q, %v", name, all, err)
		}
	}
	guard.survivors.Store(new([]string))
	f.until("g0", "leads once the survivor is dead", status.Daemon.Leads)
	f.until("g1", "leads once the survivor is dead", status.Daemon.Leads)
}

// groupLog calls see for each message of a group.
type groupLog struct {
	group string
	see   func(group string, r slog.Record)
}

func (h groupLog) Enabled(context.Context, slog.Level) bool { return true }

func (h groupLog) Handle(_ context.Context, r slog.Record) error {
	h.see(h.group, r)
	return nil
}

func (h groupLog) WithGroup(string) slog.Handler { return h }

func (h groupLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		if a.Key == "group" {
			h.group = a.Value.String()
		}
	}
	return h
}

// Whatever happens to some of 24 groups, the others keep their leaderships: a loop that panics or is stuck is abandoned, and a member
// whose registration was deleted leaves. A new instance of each registers in the same session.
func TestFaultsOfOneGroupLeaveTheOthersAlone(t *testing.T) {
	const groups = 24
	free := make(chan struct{})
	t.Cleanup(func() { close(free) })
	var panicked, stuck atomic.Bool
	log := slog.New(groupLog{see: func(group string, r slog.Record) {
		switch {
		case r.Message != "now leading":
		case group == "g1" && !panicked.Swap(true):
			panic("the test")
		case group == "g2" && !stuck.Swap(true):
			<-free
		}
	}})
	f := runGroups(t, fresh(), "a", groups, func(o *Options) {
		o.Log = log
		o.Config.Config.ZooKeeper.SessionTimeout = 14 * time.Second // the starts of so many works must not cost a lease
	})
	before := make(map[string]status.Daemon)
	for i := range groups {
		name := fmt.Sprint("g", i)
		if i != 1 && i != 2 {
			f.until(name, "leads", status.Daemon.Leads)
		}
		before[name] = f.view(name)
	}
	conn := initialSession(t)
	for name, path := range map[string]string{
		"g3": cluster.Paths{Root: f.base + "/g3"}.Incarnation(before["g3"].Incarnation),
		"g4": cluster.Paths{Root: f.base + "/g4"}.Node("a"),
	} {
		if _, err := conn.Do(t.Context(), cluster.Op{Kind: cluster.OpDelete, Path: path, Version: cluster.AnyVersion}); err != nil {
			t.Fatal(name, err)
		}
	}
	for _, name := range []string{"g1", "g2", "g3", "g4"} {
		f.until(name, "leads with a new instance", func(v status.Daemon) bool {
			return v.Leads() && v.Incarnation != before[name].Incarnation && !strings.HasSuffix(v.Incarnation, "-n_0000000000")
		})
		delete(before, name)
		p := cluster.Paths{Root: f.base + "/" + name}
		data, stat, err := conn.Get(t.Context(), p.Node("a"), false)
		rec := cluster.ReadStored[cluster.Node](p.Node("a"), data, stat, err == nil)
		if !rec.Readable() || rec.Record.LastTerm == 0 {
			t.Errorf("%s: the new instance has forgotten the term of the one before (%v)", name, err)
		}
	}
	for name, was := range before {
		if v := f.view(name); v.Incarnation != was.Incarnation || v.Term != was.Term || !v.Leads() {
			t.Errorf("%s was disturbed: %+v", name, v)
		}
	}
	if n := f.Totals(); n.Sessions != 1 {
		t.Errorf("%d sessions", n.Sessions)
	}
}

// group returns the group with that name; nil if there is none.
func (h *Host) group(name string) *Group {
	for _, g := range h.Groups() {
		if g.name == name {
			return g
		}
	}
	return nil
}
