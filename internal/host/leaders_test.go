package host

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store/storetest"
	"zkelectd/internal/work/hook"
)

// watched is a group whose leadership a test writes, and the watch of a host.
type watched struct {
	*leaderWatch
	t      *testing.T
	server *storetest.Server
	conn   *storetest.Session // of the leaders
	out    string
}

// watch returns a group with a hook that writes its input and variables to a file.
func watch(t *testing.T, env ...string) *watched {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	cfg := load(t, append([]string{"ZKELECTD_NODE_ID=me", "ZKELECTD_NODE_SITE=dc1", "ZKELECTD_ZOOKEEPER_ROOT=/g", "ZKELECTD_CHILD_NONE=true"}, env...)...)
	cfg.Groups[0].Config.Hooks.OnLeaderChange = []string{"sh", "-c", "(env | grep ZKELECTD_ | LC_ALL=C sort | tr '\\n' ' '; echo $EXTRA; cat) >>" + out}
	cfg.Groups[0].Config.Child.Env = map[string]string{"EXTRA": "east"}
	h := newOnly(Options{Config: cfg, Log: slog.New(slog.DiscardHandler), Guard: guardClient})
	w := &watched{leaderWatch: h.leaders, t: t, server: storetest.NewServer(), out: out}
	w.conn = w.server.Connect()
	w.hooks = hook.NewLatest(w.hook, w.group.log)
	for _, path := range []string{"/g", "/g/leader"} {
		w.write(cluster.Op{Kind: cluster.OpCreate, Path: path})
	}
	t.Cleanup(func() { w.hooks.Close(context.Background()) })
	return w
}

func (w *watched) write(ops ...cluster.Op) {
	w.t.Helper()
	if _, err := w.conn.Do(w.t.Context(), ops...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *watched) paths() cluster.Paths { return w.group.paths }

// fence returns the write of a fence.
func (w *watched) fence(term int64, node string, state cluster.FenceState) cluster.Op {
	f := &cluster.Fence{Term: term, Node: node, State: state, Session: w.conn.SessionID()}
	return cluster.Op{Kind: cluster.OpSet, Path: w.paths().Leader(), Version: cluster.AnyVersion, Data: cluster.Encode(f)}
}

// begin lets a node take leadership over.
func (w *watched) begin(c cluster.Current) {
	w.t.Helper()
	c.Site, c.State = "dc9", cluster.CurrentProgress
	w.write(w.fence(c.Term, c.Node, cluster.FenceHeld), cluster.Op{Kind: cluster.OpCreate, Path: w.paths().Current(), Ephemeral: true, Data: cluster.Encode(&c)})
	c.State = cluster.CurrentReady
	w.write(w.fence(c.Term, c.Node, cluster.FenceReady), cluster.Op{Kind: cluster.OpSet, Path: w.paths().Current(), Version: cluster.AnyVersion, Data: cluster.Encode(&c)})
}

// end ends the leadership.
func (w *watched) end(ops ...cluster.Op) {
	w.t.Helper()
	w.write(append(ops, cluster.Op{Kind: cluster.OpDelete, Path: w.paths().Current(), Version: cluster.AnyVersion})...)
}

// watching runs the watch over a session until stop is called.
func (w *watched) watching() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	conn := w.server.Connect()
	go func() {
		defer close(done)
		w.run(ctx, conn)
	}()
	return func() {
		cancel()
		<-done
	}
}

// runs returns what the hook has got, without the times.
func (w *watched) runs() []string {
	w.t.Helper()
	data, err := os.ReadFile(w.out)
	if err != nil && !os.IsNotExist(err) {
		w.t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

// ran waits until the hook has run n times, and returns the last run: its variables, and its input.
func (w *watched) ran(n int) (string, status.LeaderChange) {
	w.t.Helper()
	var all []string
	wait(w.t, fmt.Sprintf("%d runs", n), func() bool { all = w.runs(); return len(all) >= 2*n }, func() string { return strings.Join(all, "\n") })
	if len(all) != 2*n {
		w.t.Fatalf("%d lines, want %d:\n%s", len(all), 2*n, strings.Join(all, "\n"))
	}
	var c status.LeaderChange
	if err := json.Unmarshal([]byte(all[2*n-1]), &c); err != nil || c.Time.IsZero() {
		w.t.Fatalf("%v: %q", err, all[2*n-1])
	}
	c.Time = time.Time{}
	return all[2*n-2], c
}

// The hook runs at the start, once for each leader, and when nobody leads. A new session is no change.
func TestLeaderHookRunsOncePerChange(t *testing.T) {
	w := watch(t)
	w.begin(cluster.Current{Term: 7, Node: "n1", Cause: cluster.CauseFirst, Reason: "there was none"})
	stop := w.watching()
	_, got := w.ran(1)
	want := status.LeaderChange{
		Node: "me", Site: "dc1", Group: "g", Root: "/g", Leader: "n1", LeaderSite: "dc9", Term: 7, State: "READY", Cause: "first", Reason: "there was none",
	}
	if got != want {
		t.Errorf("%+v", got)
	}
	const identity = "ZKELECTD_GROUP=g ZKELECTD_LEADER=%s ZKELECTD_NODE=me ZKELECTD_PREVIOUS_CLEAN=%t ZKELECTD_PREVIOUS_LEADER=%s ZKELECTD_ROOT=/g ZKELECTD_SITE=dc1 ZKELECTD_TERM=%s east"
	stop()
	stop = w.watching() // in another session
	wait(t, "it has read", func() bool { return w.holder() != nil })
	stop()
	w.hooks.Close(t.Context()) // waits for what it has begun
	w.ran(1)
	w.hooks = hook.NewLatest(w.hook, w.group.log)
	stop = w.watching()
	w.end(w.fence(7, "n1", cluster.FenceReleased))
	var vars string
	vars, got = w.ran(2)
	if want = (status.LeaderChange{Node: "me", Site: "dc1", Group: "g", Root: "/g", Term: 7, State: "NONE", PreviousLeader: "n1", PreviousClean: true}); got != want {
		t.Errorf("nobody leads: %+v", got)
	}
	if want := "ZKELECTD_CAUSE= " + strings.Replace(fmt.Sprintf(identity, "", true, "n1", "7"), "ZKELECTD_NODE", "ZKELECTD_LEADER_SITE= ZKELECTD_NODE", 1); vars != want {
		t.Errorf("nobody leads: %s, want %s", vars, want)
	}
	w.begin(cluster.Current{Term: 9, Node: "n2", Cause: cluster.CauseMove, Reason: "ann wants it", PreviousLeader: "n1", PreviousClean: true})
	vars, got = w.ran(3)
	if got.Leader != "n2" || got.Term != 9 || got.PreviousLeader != "n1" || !got.PreviousClean {
		t.Errorf("the next one: %+v", got)
	}
	if want := "ZKELECTD_CAUSE=move " + strings.Replace(fmt.Sprintf(identity, "n2", true, "n1", "9"), "ZKELECTD_NODE", "ZKELECTD_LEADER_SITE=dc9 ZKELECTD_NODE", 1); vars != want {
		t.Errorf("the next one: %s, want %s", vars, want)
	}
	w.end() // the session has ended, without a release
	if _, got = w.ran(4); got.Leader != "" || got.Term != 9 || got.PreviousLeader != "n2" || got.PreviousClean {
		t.Errorf("lost: %+v", got)
	}
	stop()
}

// The events have each state, also on a host without the hook once somebody reads them.
func TestLeadershipEventsOfAStandby(t *testing.T) {
	w := watch(t)
	c := w.group.config()
	c.Hooks.OnLeaderChange = nil
	w.group.inForce.Store(&c)
	start := w.group.feed.Newest()
	interested := make(chan bool)
	go func() { interested <- w.awaitInterest(t.Context()) }()
	w.group.feed.Follow()
	if !<-interested {
		t.Fatal("nobody is interested")
	}
	stop := w.watching()
	defer stop()
	next := func(want string) {
		t.Helper()
		var all []string
		wait(t, want, func() bool {
			events, _, _ := w.group.feed.Since(start)
			all = nil
			for _, e := range events {
				if e.Kind == status.EventLeadership {
					all = append(all, string(e.Data))
				}
			}
			return slices.Contains(all, want)
		}, func() string { return strings.Join(all, "\n") })
	}
	next(`{"state":"NONE","previous_clean":false}`)
	w.begin(cluster.Current{Term: 7, Node: "n1", Cause: cluster.CauseMove, Reason: "ann", PreviousLeader: "n3", PreviousClean: true})
	next(`{"node":"n1","site":"dc9","term":7,"state":"READY","cause":"move","reason":"ann","previous_leader":"n3","previous_clean":true}`)
	if h := w.group.View().Holder; h == nil || h.Node != "n1" || h.State != "READY" {
		t.Errorf("the view shows %+v", h)
	}
	w.end(w.fence(7, "n1", cluster.FenceReleased))
	next(`{"term":7,"state":"NONE","previous_leader":"n1","previous_clean":true}`)
	copied := cluster.Current{Term: 8, Node: "n9", State: cluster.CurrentReady} // no session owns it: n9 does not lead
	w.write(w.fence(9, "n1", cluster.FenceReleased), cluster.Op{Kind: cluster.OpCreate, Path: w.paths().Current(), Data: cluster.Encode(&copied)})
	next(`{"term":9,"state":"NONE","previous_leader":"n1","previous_clean":true}`)
	w.end()
	if got := w.runs(); got[0] != "" {
		t.Errorf("the hook ran: %q", got)
	}

	// A reload sets the hook: it runs with what is known.
	reloaded := c
	reloaded.Hooks.OnLeaderChange = []string{"sh", "-c", "(echo began; cat) >>" + w.out}
	w.group.inForce.Store(&reloaded)
	w.reconsider()
	if _, got := w.ran(1); got.State != "NONE" || got.PreviousLeader != "n1" {
		t.Errorf("after a reload: %+v", got)
	}
}

// A hook that fails is counted.
func TestLeaderHookThatFails(t *testing.T) {
	w := watch(t)
	c := w.group.config()
	c.Hooks.OnLeaderChange = []string{"false"}
	w.group.inForce.Store(&c)
	stop := w.watching()
	defer stop()
	wait(t, "it is counted", func() bool { return w.group.Totals().HookFailures == 1 && w.group.host.Totals().HookFailures == 1 })
}

// The hook of a slot has its number, and texts that other hosts chose cannot be more than text.
func TestLeaderHookOfASlot(t *testing.T) {
	cfg := load(t, "ZKELECTD_NODE_ID=me", "ZKELECTD_NODE_SITE=dc1", "ZKELECTD_ZOOKEEPER_ROOT=/g", "ZKELECTD_CHILD_NONE=true", "ZKELECTD_SLOTS_COUNT=3")
	h := New(Options{Config: cfg, Log: slog.New(slog.DiscardHandler), Guard: guardClient})
	l := status.HolderChange{
		Holder: status.Holder{Node: "n1", Site: "dc9", Term: 7, State: "READY"}, Cause: "move", PreviousLeader: "n2\nLD_PRELOAD=x", PreviousClean: true,
	}
	in := h.Groups()[1].leaders.input(l, hookedChange{known: true, ready: true, term: 7})
	slices.Sort(in.Env)
	want := []string{
		"ZKELECTD_CAUSE=move", "ZKELECTD_GROUP=g", "ZKELECTD_LEADER=n1", "ZKELECTD_LEADER_SITE=dc9", "ZKELECTD_NODE=me", "ZKELECTD_PREVIOUS_CLEAN=true",
		"ZKELECTD_PREVIOUS_LEADER=", "ZKELECTD_ROOT=/g", "ZKELECTD_SITE=dc1", "ZKELECTD_SLOT=1", "ZKELECTD_SLOTS=3", "ZKELECTD_TERM=7",
	}
	if !slices.Equal(in.Env, want) || !strings.Contains(string(in.Data), `"group":"g/1"`) {
		t.Errorf("%q\n%s", in.Env, in.Data)
	}
}
