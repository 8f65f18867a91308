package host

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/request"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/test/testhelper"
)

// runWithPids starts a host with the groups g0 and g1, and waits until it leads them. It returns the pid of the child
// that was started last in g0.
func runWithPids(t *testing.T, settings string) (f *fleetOf, pid int) {
	t.Helper()
	var started atomic.Int64
	log := slog.New(groupLog{see: func(group string, r slog.Record) {
		r.Attrs(func(a slog.Attr) bool {
			if group == "g0" && strings.HasPrefix(r.Message, "child started") && a.Key == "pid" {
				started.Store(a.Value.Int64())
			}
			return true
		})
	}})
	base := fresh()
	initializeAll(t, base, 2)
	f = joinGroupsOf(t, base, "a", 2, settings, func(o *Options) { o.Log = log })
	f.until("g0", "leads", status.Daemon.Leads)
	f.until("g1", "leads", status.Daemon.Leads)
	return f, int(started.Load())
}

// running returns the running instance of a group.
func (f *fleetOf) running(name string) *instance { return f.membership(name).instance() }

// membership returns the membership of a group.
func (f *fleetOf) membership(name string) *membership {
	f.mu.Lock()
	s := f.session
	f.mu.Unlock()
	return s.member(f.group(name).resource)
}

const (
	stuckLoop     = "a loop that is stuck"
	stuckPromoted = "a loop that is stuck, and promoted work"
	leaveBefore   = "a LEAVE that does not wait for the death"
)

// A member whose instance is over, but whose work does not die, may be the oldest one: an elector that no longer elects. It leaves, and
// its leadership counts as revoked. It registers again only when its work is dead.
func TestWorkThatDoesNotDieLeavesTheGroupToOthers(t *testing.T) {
	beStuck := func(f *fleetOf) {
		i := f.running("g0")
		i.once.Do(func() { close(i.stuck) })
	}
	for what, end := range map[string]func(f *fleetOf){
		stuckLoop:     beStuck,
		stuckPromoted: beStuck,
		"a record that was deleted": func(f *fleetOf) {
			if _, err := initialSession(f.t).Do(f.t.Context(), cluster.Op{Kind: cluster.OpDelete, Path: f.base + "/g0/nodes/a", Version: cluster.AnyVersion}); err != nil {
				f.t.Fatal(err)
			}
		},
		leaveBefore: func(f *fleetOf) { // an abandoned instance whose guard is lost
			m := f.membership("g0")
			if err := m.leave(f.t.Context(), m.instance(), &abandonedError{"the test"}); err != nil {
				f.t.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			settings := work
			if what == stuckPromoted {
				settings = promotable
			}
			f, pid := runWithPids(t, settings)
			first, kept := f.view("g0"), f.view("g1")
			release := testhelper.HangOnDeath(t, pid)
			end(f)
			conn, p := initialSession(t), cluster.Paths{Root: f.base + "/g0"}
			wait(t, "the member leaves", func() bool {
				names, _, err := conn.Children(t.Context(), p.Election(), false)
				return err == nil && len(names) == 0
			})
			if strings.HasPrefix(what, stuckLoop) && f.running("g0").starts.Request(func() {}).Granted() {
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

// An abandoned instance gets new handles, for LEAVE. The end of the session must not send its final transaction, which
// would release what is not proven to be dead.
func TestTheFinalOfAnAbandonedInstanceIsDropped(t *testing.T) {
	root := fresh()
	initialize(t, root)
	h := newOnly(Options{Config: load(t, "ZKELECTD_ZOOKEEPER_ROOT="+root, "ZKELECTD_CHILD_NONE=true"),
		Log: slog.New(slog.DiscardHandler), Guard: guardClient})
	conn := initialSession(t)
	m, i := newMembership(&session{host: h.Host, zk: conn, ctx: t.Context()}, h.resources()[0]), new(instance)
	m.connect(i)
	abandoned := i.conns[0]
	final := cluster.Op{Kind: cluster.OpSet, Path: h.paths.Leader(), Version: cluster.AnyVersion, Data: []byte("final")}
	abandoned.CloseWith(final)
	abandoned.Abandon()
	m.connect(i)
	if len(i.conns) != 1 || i.conns[0] == abandoned {
		t.Error("it has no new handle")
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if data, _, err := initialSession(t).Get(t.Context(), final.Path, false); err != nil || string(data) == "final" {
		t.Errorf("the fence is %q, %v", data, err)
	}
}

// The guard has run the post_stop hook of an instance that was abandoned, but nobody knows how that has ended: the next
// leader waits. There is none in this test, as the group is paused: the fence stays as LEAVE has written it.
func TestLeaveOfAnAbandonedInstanceMakesTheNextLeaderWait(t *testing.T) {
	f, _ := runWithPids(t, work+"hooks: {post_stop: ['true']}\n")
	hard := request.Request{Kind: request.KindPause, Hard: true, Options: request.Options{By: "ann"}}
	if _, err := f.group("g0").Submit(t.Context(), hard); err != nil {
		t.Fatal(err)
	}
	f.until("g0", "is paused", func(v status.Daemon) bool { return v.Paused })
	i := f.running("g0")
	i.once.Do(func() { close(i.stuck) })
	conn, p := initialSession(t), cluster.Paths{Root: f.base + "/g0"}
	var fence cluster.Fence
	wait(t, "the member leaves", func() bool {
		data, stat, err := conn.Get(t.Context(), p.Leader(), false)
		fence = cluster.ReadFence(p.Leader(), data, stat, err == nil).Record
		return err == nil && fence.State != cluster.FenceReady
	})
	if fence.State != cluster.FenceUnclean || time.Duration(fence.Owed) != i.Budget().LeaseWait {
		t.Errorf("the fence is %+v", fence)
	}
}

// While a session that ends waits for the work of one group, its members of the others leave at once, and then the one
// of that group as well: they no longer elect.
func TestAnEndingSessionLeavesTheOtherGroups(t *testing.T) {
	f, pid := runWithPids(t, work)
	release := testhelper.HangOnDeath(t, pid)
	f.Stop("the test")
	conn := initialSession(t)
	members := func(name string) int {
		names, _, err := conn.Children(t.Context(), f.base+"/"+name+"/election", false)
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	wait(t, "g1: the member leaves", func() bool { return members("g1") == 0 })
	if n := members("g0"); n != 1 || f.view("g0").Term == 0 {
		t.Errorf("g0 has %d members: the host has left g1 no earlier than g0", n)
	}
	wait(t, "g0: the member leaves", func() bool { return members("g0") == 0 })
	release()
}

// A standby outlives the session. One that leads is killed with it, as any work.
func TestAStandbyOutlivesTheSession(t *testing.T) {
	var pids []int
	var mu sync.Mutex
	log := slog.New(groupLog{see: func(_ string, r slog.Record) {
		r.Attrs(func(a slog.Attr) bool {
			if r.Message == "child started as a standby" && a.Key == "pid" {
				mu.Lock()
				pids = append(pids, int(a.Value.Int64()))
				mu.Unlock()
			}
			return true
		})
	}})
	base := fresh()
	initializeAll(t, base, 1)
	f := joinGroupsOf(t, base, "a", 1, promotable+"policy: {filter: ['member.id != \"a\"']}\n", func(o *Options) { o.Log = log })
	warm := func(v status.Daemon) bool {
		return v.Incarnation != "" && v.Loop && v.Standby != nil && v.Standby.State == cluster.StandbyWarm
	}
	f.until("g0", "is warm", warm)
	first := f.view("g0")
	f.running("g0").conns[0].Fail(errors.New("the test"))
	f.until("g0", "is a member again", func(v status.Daemon) bool { return warm(v) && v.Incarnation != first.Incarnation })
	mu.Lock()
	defer mu.Unlock()
	if len(pids) != 1 || syscall.Kill(pids[0], 0) != nil {
		t.Errorf("the processes are %v", pids)
	}
}
