package host

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/test/testhelper"
)

// pidLog records the pid of the child that was started last in each group.
type pidLog struct {
	group string
	pids  *sync.Map
}

func (pidLog) Enabled(context.Context, slog.Level) bool { return true }

func (h pidLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "child started" {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "pid" {
				h.pids.Store(h.group, int(a.Value.Int64()))
			}
			return true
		})
	}
	return nil
}

func (h pidLog) WithGroup(string) slog.Handler { return h }

func (h pidLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		if a.Key == "group" {
			h.group = a.Value.String()
		}
	}
	return h
}

// running returns the running instance of a group.
func (f *fleetOf) running(name string) *instance {
	f.mu.Lock()
	s := f.session
	f.mu.Unlock()
	return s.member(f.group(name).resource).instance()
}

const stuckLoop = "a loop that is stuck"

// A member whose instance is over, but whose work does not die, may be the oldest one: an elector that no longer elects. It leaves, and
// its leadership counts as revoked. It registers again only when its work is dead.
func TestWorkThatDoesNotDieLeavesTheGroupToOthers(t *testing.T) {
	for what, end := range map[string]func(f *fleetOf){
		stuckLoop: func(f *fleetOf) {
			i := f.running("g0")
			i.once.Do(func() { close(i.stuck) })
		},
		"a record that was deleted": func(f *fleetOf) {
			if _, err := initialSession(f.t).Do(f.t.Context(), cluster.Op{Kind: cluster.OpDelete, Path: f.base + "/g0/nodes/a", Version: cluster.AnyVersion}); err != nil {
				f.t.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			log := pidLog{pids: new(sync.Map)}
			f := runGroups(t, fresh(), "a", 2, func(o *Options) { o.Log = slog.New(log) })
			f.until("g0", "leads", status.Daemon.Leads)
			f.until("g1", "leads", status.Daemon.Leads)
			first, kept := f.view("g0"), f.view("g1")
			pid, _ := log.pids.Load("g0")
			release := testhelper.HangOnDeath(t, pid.(int))
			end(f)
			conn, p := initialSession(t), cluster.Paths{Root: f.base + "/g0"}
			wait(t, "the member leaves", func() bool {
				names, _, err := conn.Children(t.Context(), p.Election(), false)
				return err == nil && len(names) == 0
			})
			if what == stuckLoop && f.running("g0").starts.Request(func() {}).Granted() {
				t.Error("other groups must wait until its work is dead")
			}
			data, stat, err := conn.Get(t.Context(), p.Leader(), false)
			if fence := cluster.ReadFence(p.Leader(), data, stat, err == nil); fence.Record.State != cluster.FenceRevoked || fence.Record.Term != first.Term {
				t.Errorf("the fence is %+v, %v", fence.Record, fence.Err)
			}
			release()
			f.until("g0", "leads with a new instance", func(v status.Daemon) bool { return v.Leads() && v.Incarnation != first.Incarnation })
			if v := f.view("g1"); v.Incarnation != kept.Incarnation || v.Term != kept.Term || !v.Leads() || f.Totals().Sessions != 1 {
				t.Errorf("g1 was disturbed: %+v", v)
			}
		})
	}
}

// While the session waits for the work of one group, the members of the others leave: they no longer elect.
func TestAnEndingSessionLeavesTheOtherGroups(t *testing.T) {
	log := pidLog{pids: new(sync.Map)}
	f := runGroups(t, fresh(), "a", 2, func(o *Options) { o.Log = slog.New(log) })
	f.until("g0", "leads", status.Daemon.Leads)
	f.until("g1", "leads", status.Daemon.Leads)
	pid, _ := log.pids.Load("g0")
	release := testhelper.HangOnDeath(t, pid.(int))
	f.Stop("the test")
	conn := initialSession(t)
	for _, name := range []string{"g1", "g0"} {
		wait(t, name+": the member leaves", func() bool {
			names, _, err := conn.Children(t.Context(), f.base+"/"+name+"/election", false)
			return err == nil && len(names) == 0
		})
	}
	release()
}

// While a host that is stopped waits for the work of one group, it leaves the others at once: it is no candidate and no elector there.
func TestAStoppingHostLeavesTheGroupsThatItDoesNotLead(t *testing.T) {
	trapped := filepath.Join(t.TempDir(), "trapped")
	f := runGroups(t, fresh(), "a", 2, func(o *Options) {
		o.Config.Groups[0].Config.Child.Command = []string{"sh", "-c", "trap '' TERM; touch " + trapped + "; while :; do sleep 1; done"}
		o.Config.Groups[0].Config.Child.StopTimeout = 3500 * time.Millisecond // longer than it takes to leave
	})
	f.until("g0", "leads", status.Daemon.Leads)
	f.until("g1", "leads", status.Daemon.Leads)
	wait(t, "the work ignores SIGTERM", func() bool { _, err := os.Stat(trapped); return err == nil })
	f.Stop("the test")
	conn := initialSession(t)
	members := func(name string) []string {
		names, _, err := conn.Children(t.Context(), f.base+"/"+name+"/election", false)
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	wait(t, "g1: the member leaves", func() bool { return len(members("g1")) == 0 })
	if names := members("g0"); len(names) != 1 || f.view("g0").Term == 0 {
		t.Errorf("g0 has the members %q: the host has left g1 no earlier than the end of its session", names)
	}
}
