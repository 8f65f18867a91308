package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/zk"
)

// reloaded returns a configuration of the only group of a host, as read again.
func reloaded(h *Host, c config.Config) Reloaded {
	return Reloaded{Reloaded: config.Reloaded{Host: config.Host{Config: c, Groups: []config.Group{{Name: h.Groups()[0].name, Config: c}}}}}
}

// A reload while hooks, probes and the child are being started: the race detector must find nothing.
func TestReloadsDuringATakeover(t *testing.T) {
	var reloads sync.WaitGroup
	reloading, stop := context.WithCancel(t.Context())
	priority := 0
	h, done := runWith(t, fresh(), "a", func(h *Host) {
		next := h.opt.Config.Config
		h.opt.Reload = func(config.Host, bool) (Reloaded, error) {
			priority++
			next.Node.Priority, next.Node.Site = priority, []string{"dc1", "dc2"}[priority%2]
			return reloaded(h, next), nil
		}
		reloads.Go(func() {
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					h.Reload()
				case <-reloading.Done():
					return
				}
			}
		})
	}, "ZKELECTD_CHILD_COMMAND=sleep,1000", "ZKELECTD_CHILD_READY_EXEC=true", "ZKELECTD_CHILD_LIVE_EXEC=true",
		"ZKELECTD_HOOKS_PRE_START=sleep,0.1", "ZKELECTD_HOOKS_POST_STOP=sleep,0.1", "ZKELECTD_HEALTH_EXEC=true", "ZKELECTD_HEALTH_INTERVAL=5ms")
	until(t, h, "a leads", status.Daemon.Leads)
	h.Stop("the test is over")
	if err := <-done; err != nil {
		t.Error(err)
	}
	stop()
	reloads.Wait()
	if priority < 10 {
		t.Errorf("reloaded %d times", priority)
	}
}

// Commit is called once the configuration is accepted, and not before. The node's record has the result of each reload.
func TestReloadIsCommittedWhenAccepted(t *testing.T) {
	cases := []struct {
		read              func(*Host, config.Config) (Reloaded, error)
		commits           int32
		refused, reloaded string
	}{
		{func(*Host, config.Config) (Reloaded, error) { return Reloaded{}, errors.New("no such file") }, 0, "no such file", ""},
		{func(h *Host, c config.Config) (Reloaded, error) {
			c.Node.Priority, c.Hooks.Timeout = 7, time.Minute
			r := reloaded(h, c)
			r.Files = []string{"http.token_file"}
			return r, nil
		}, 1, "", "applied: node.priority, http.token_file; a restart is needed for hooks.timeout"},
		{func(h *Host, c config.Config) (Reloaded, error) {
			c.Node.Priority, c.Policy.Filter = 8, []string{"false"}
			return reloaded(h, c), nil
		}, 1, "under this policy no member is eligible", ""},
		{func(h *Host, c config.Config) (Reloaded, error) {
			c.Node.Priority = 7
			return reloaded(h, c), nil
		}, 2, "", "no setting has changed"},
	}
	root := fresh()
	var turn, commits atomic.Int32
	h, done := runWith(t, root, "a", func(h *Host) {
		base := h.opt.Config.Config
		h.opt.Reload = func(config.Host, bool) (Reloaded, error) {
			r, err := cases[turn.Add(1)-1].read(h, base)
			r.Commit = func(config.Host) { commits.Add(1) }
			return r, err
		}
	})
	until(t, h, "a leads", status.Daemon.Leads)
	record := func() cluster.Node {
		data, stat, err := h.cache.Source().Session.Get(t.Context(), cluster.Paths{Root: root}.Node("a"), false)
		slot := cluster.ReadStored[cluster.Node]("a", data, stat, err == nil)
		if err != nil || slot.Err != nil {
			t.Fatal(err, slot.Err)
		}
		return slot.Record
	}
	for i, c := range cases {
		h.Reload()
		wait(t, "the reload is in the record", func() bool { return record().Reloads == int64(i+1) })
		n := record()
		if !strings.Contains(n.Refused, c.refused) || (n.Refused == "") != (c.refused == "") || n.Reloaded != c.reloaded || commits.Load() != c.commits {
			t.Errorf("%d: refused %q, reloaded %q, %d commits", i, n.Refused, n.Reloaded, commits.Load())
		}
		if want := map[bool]int{true: 100, false: 7}[i == 0]; n.Priority != want {
			t.Errorf("%d: the priority is %d, not %d", i, n.Priority, want)
		}
		if failed := h.Totals().ReloadFailed; failed != (c.refused != "") {
			t.Errorf("%d: failed %t", i, failed)
		}
	}
	h.Stop("the test is over")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A reload is neither refused nor lost if its session ends before it is complete: the next session, which begins a new
// term, repeats it, and its member has the new settings. The loss is counted.
func TestReloadOutlivesItsSession(t *testing.T) {
	root := fresh()
	lost := false
	d, _ := runWith(t, root, "a", func(d *Host) {
		next := d.opt.Config.Config
		next.Node.Priority, next.Policy.Type = 9, "node-id"
		d.opt.Reload = func(config.Host, bool) (Reloaded, error) {
			if !lost {
				lost = true
				s := only{d, nil}.zk()
				if err := zk.CloseSession(t.Context(), zk.SessionHandle{Servers: []string{server.Addr()}, Session: s.SessionID(), Password: s.Password()}); err != nil {
					t.Error(err)
				}
				<-s.Done()
			}
			return reloaded(d, next), nil
		}
	}, "ZKELECTD_CHILD_COMMAND=sleep,1000")
	until(t, d, "leads", status.Daemon.Leads)
	first := d.View()
	d.Reload()
	read := func() (n cluster.Node) {
		if src := d.cache.Source(); src != nil {
			path := src.Paths.Node("a")
			data, stat, err := src.Session.Get(t.Context(), path, false)
			n = cluster.ReadStored[cluster.Node](path, data, stat, err == nil).Record
		}
		return n
	}
	wait(t, "the reload is finished", func() bool { return read().Reloads > 0 }, func() string { return fmt.Sprintf("%+v %+v", read(), d.View()) })
	if n := read(); n.Refused != "" || n.Priority != 9 || n.Reloads != 1 || n.PolicyDigest != d.config().Rules().Digest() {
		t.Errorf("the record is %+v", n)
	}
	until(t, d, "leads again, in another session", func(v status.Daemon) bool {
		return v.Leads() && v.Incarnation != first.Incarnation
	})
	if n := d.Totals(); n.Sessions != 2 || n.SessionsLost != 1 || n.Restarts != 0 || n.ReloadFailed {
		t.Errorf("it has counted %+v", n)
	}
	if v := d.View(); v.Term <= first.Term {
		t.Errorf("term %d after %d", v.Term, first.Term)
	}
}

// A reload publishes what has changed in the file, and no older values in the rest of it: neither those of a file that was not changed when
// another host's was, nor those of a file that was restored while the daemon was down. It refuses to change what another has changed.
func TestReloadPublishesWhatHasChanged(t *testing.T) {
	root := fresh()
	var next [2]atomic.Pointer[config.Config]
	start := func(i int, env ...string) (only, <-chan error) {
		h, done := runWith(t, root, string("ab"[i]), func(h *Host) {
			h.opt.Reload = func(config.Host, bool) (Reloaded, error) { return reloaded(h, *next[i].Load()), nil }
		}, append([]string{"ZKELECTD_POLICY_SITES=dc1=200,dc2=100"}, env...)...)
		c := h.config()
		next[i].Store(&c)
		until(t, h, "registered", func(v status.Daemon) bool { return v.Membership == status.MembershipMember })
		return h, done
	}
	a, _ := start(0)
	until(t, a, "a leads", status.Daemon.Leads)
	b, ended := start(1)
	change := func(h only, i int, edit func(*config.Policy)) ReloadResult {
		t.Helper()
		c := *next[i].Load()
		c.Policy.Sites = maps.Clone(c.Policy.Sites)
		edit(&c.Policy)
		next[i].Store(&c)
		result, err := h.ReloadWith(t.Context(), ReloadRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	inForce := func() cluster.Policy {
		path := cluster.Paths{Root: root}.Policy()
		data, stat, err := a.cache.Source().Session.Get(t.Context(), path, false)
		rec := cluster.ReadStored[cluster.Policy](path, data, stat, err == nil)
		if !rec.Readable() {
			t.Fatal(err, rec.Err)
		}
		return rec.Record
	}
	check := func(what string, r ReloadResult, published, unpublished string, revision int64, dc1 int) {
		t.Helper()
		if r.Refused != "" || strings.Join(r.Groups[0].Published, "; ") != published || strings.Join(r.Groups[0].Unpublished, "; ") != unpublished {
			t.Errorf("%s: %+v", what, r)
		}
		if p := inForce(); p.Revision != revision || p.Sites["dc1"] != dc1 {
			t.Errorf("%s: %+v is in force", what, p)
		}
	}
	dc1 := func(n int) func(*config.Policy) { return func(p *config.Policy) { p.Sites["dc1"] = n } }
	const stale = "policy.sites.dc1: the file has 200, in force is 300"

	check("a changes a key", change(a, 0, dc1(300)), "policy.sites: {dc1: 200, dc2: 100} -> {dc1: 300, dc2: 100}", "", 2, 300)
	check("b changes another", change(b, 1, func(p *config.Policy) { p.MaxPreemptions = 7 }), "policy.max_preemptions: 6 -> 7", stale, 3, 300)
	until(t, b, "b has seen the difference", func(v status.Daemon) bool { return v.Drift != "" })
	check("b changes nothing", change(b, 1, func(*config.Policy) {}), "", stale, 3, 300)

	if r := change(b, 1, dc1(250)); !strings.Contains(r.Refused, "revision 3, published by b, has changed the same: policy.sites.dc1: the file has 250, in force is 300") {
		t.Errorf("a conflict: %+v", r)
	}
	check("b has what is in force", change(b, 1, dc1(300)), "", "", 3, 300)
	check("b changes it then", change(b, 1, dc1(250)), "policy.sites: {dc1: 300, dc2: 100} -> {dc1: 250, dc2: 100}", "", 4, 250)

	b.Stop("the test starts it again, with an older file")
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	b, _ = start(1)
	check("after a restart", change(b, 1, func(p *config.Policy) { p.Failback = "5m0s" }), "policy.failback: manual -> 5m0s",
		"policy.sites.dc1: the file has 200, in force is 250; policy.max_preemptions: the file has 6, in force is 7", 5, 250)
}
