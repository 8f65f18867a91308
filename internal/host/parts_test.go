package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/elector"
	"zkelectd/internal/group"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/policy"
	"zkelectd/internal/test/testhelper"
	"zkelectd/internal/work/command"
	"zkelectd/internal/zk"
)

// live holds the settings that a running host uses, and applies on a reload.
type live struct {
	group    group.Settings
	access   zk.Access
	servers  []string
	follow   bool
	logLevel string
	// These are read for each run.
	leaderHook, proposalHook []string
}

func liveSettings(c config.Config) live {
	return live{groupSettings(c, false), operator.Access(c, os.Getenv), c.ZooKeeper.Servers, c.ZooKeeper.Follow, c.Log.Level, c.Hooks.OnLeaderChange, c.Hooks.OnProposal}
}

// A setting that a reload is documented to apply changes what a running host uses. One that is documented to need a
// restart does not: config.ApplyReload keeps it.
func TestReloadAppliesWhatTheKeysSay(t *testing.T) {
	// With these values, all parts of the policy have an effect.
	base, err := config.Load(config.Sources{Env: []string{"ZKELECTD_NODE_ID=a", "ZKELECTD_POLICY_TYPE=exec", "ZKELECTD_POLICY_EXEC=true",
		"ZKELECTD_POLICY_FAILBACK=30s", "ZKELECTD_HTTP_LISTEN=10.0.0.1:80", "ZKELECTD_FAILSAFE_ENABLED=true"}})
	if err != nil {
		t.Fatal(err)
	}
	committed := map[string]bool{
		"http.token_file": true, "http.allowed_hosts": true, // by Reloaded.Commit
	}
	for _, k := range config.Keys() {
		next := base
		field := k.Field(&next)
		if i := slices.IndexFunc(k.Values, func(value string) bool { return value != field.String() }); i >= 0 {
			field.SetString(k.Values[i])
		} else {
			testhelper.Alter(field)
		}
		changed, restart := config.Diff(base, next)
		if len(changed)+len(restart) != 1 {
			t.Fatalf("%s was not altered alone: %v %v", k.Name, changed, restart)
		}
		applied := !reflect.DeepEqual(liveSettings(config.ApplyReload(base, next)), liveSettings(base))
		if want := k.Reload && !committed[k.Name]; applied != want {
			t.Errorf("%s: a reload applies it: %t, want %t", k.Name, applied, want)
		}
	}
}

// The lease and the silence that are configured reach a host's leaderships, its device and its deputies.
func TestLeaseOfAHost(t *testing.T) {
	cfg := load(t, "ZKELECTD_ZOOKEEPER_ROOT=/g", "ZKELECTD_CHILD_NONE=true", "ZKELECTD_ELECTION_LEASE=1s", "ZKELECTD_ELECTION_LOST_AFTER=3s", "ZKELECTD_WATCHDOG_DEVICE_MODE=automatic")
	h := New(Options{Config: cfg, Log: slog.New(slog.DiscardHandler), Guard: guardClient})
	b, err := (&session{host: h, base: 6 * time.Second, granted: 8 * time.Second}).budget(h.resources()[0])
	if err != nil || b.Lease != time.Second || b.Session != 8*time.Second || h.device.lease != time.Second {
		t.Errorf("%+v, %v; the device fits a lease of %s", b, err, h.device.lease)
	}
	if got := h.Groups()[0].instanceOptions().LostAfter; got != 3*time.Second {
		t.Errorf("a deputy waits for %s", got)
	}
	if _, err := (&session{host: h, base: 2 * time.Second, granted: 8 * time.Second}).budget(h.resources()[0]); err == nil ||
		!strings.Contains(err.Error(), "election.lease: 1s is too long for a session timeout of 2s") || !strings.Contains(err.Error(), "computed from 2s, not from the granted 8s") {
		t.Errorf("%v", err)
	}
}

func TestLeaseIsBasedOnTheSmallestGrant(t *testing.T) {
	h := new(Host)
	for _, c := range []struct{ granted, floor, want time.Duration }{
		{20 * time.Second, 0, 20 * time.Second},
		{20 * time.Second, 6 * time.Second, 6 * time.Second},
		{4 * time.Second, 6 * time.Second, 4 * time.Second}, // the setting was wrong
		{20 * time.Second, 0, 4 * time.Second},              // a server that granted it may grant it again
	} {
		if got := (config.ZooKeeper{MinSessionTimeout: c.floor}).LeaseBase(h.noteGrant(c.granted)); got != c.want {
			t.Errorf("granted %s, at least %s: %s, want %s", c.granted, c.floor, got, c.want)
		}
	}
}

func TestWhatAHostAnswersToARollCall(t *testing.T) {
	h := &Host{probes: command.NewLimit(1)}
	if h.rollCall(config.Score{Exec: []string{"echo", "7"}, Timeout: time.Second}) != nil {
		t.Error("a host without the setting answers")
	}
	for want, argv := range map[string][]string{"score.exec is not set": nil, "": {"echo", "9007199254740992"}, "score.exec false: exit status 1": {"false"}} {
		r := h.rollCall(config.Score{Exec: argv, AtElection: true, Timeout: time.Second})
		score, err := r.Measure(t.Context())
		got := ""
		if err != nil {
			got = err.Error()
		}
		if r.Timeout != time.Second || got != want || err == nil && score != 1<<53 {
			t.Errorf("%q: %v, %q", argv, score, got)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.probes.Enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer h.probes.Leave()
	if _, err := h.rollCall(config.Score{Exec: []string{"echo", "7"}, AtElection: true, Timeout: time.Second}).Measure(ctx); err == nil {
		t.Error("more commands run at once than may")
	}
}

// A check that hangs is reported, runs once only, and keeps no other from running.
func TestCheckThatHangsKeepsNoOtherFromRunning(t *testing.T) {
	t.Parallel()
	b := newBoundedChecks(10 * time.Millisecond)
	answer, started := make(chan struct{}), 0
	ended := make(chan struct{})
	hanging := func() []error {
		started++
		defer close(ended)
		<-answer
		return nil
	}
	bad := errors.New("it does not exist")
	for range 3 {
		if found := b.run(t.Context(), "one", hanging); len(found) != 1 {
			t.Fatalf("a check that hangs: %v", found)
		}
		b.limit = time.Minute // the other one is not late
		if found := b.run(t.Context(), "other", func() []error { return []error{bad} }); !slices.Equal(found, []error{bad}) {
			t.Fatalf("the other check: %v", found)
		}
	}
	close(answer)
	<-ended
	if started != 1 {
		t.Errorf("the check that hangs was started %d times", started)
	}
	for done := b.pending["one"]; len(done) == 0; {
		select {
		case found := <-done:
			done <- found
		case <-time.After(30 * time.Second):
			t.Fatal("the result does not come")
		}
	}
	if found := b.run(t.Context(), "one", func() []error { return nil }); found != nil {
		t.Errorf("after it: %v", found)
	}
}

func TestStatusLine(t *testing.T) {
	elected := func(v status.Daemon, node, site string, term int64) status.Daemon {
		v.Node, v.SnapshotAt, v.Elected, v.ElectedSite, v.ElectedTerm = "a", 1, node, site, term
		return v
	}
	for name, c := range map[string]struct {
		v       status.Daemon
		refused bool
		want    string
	}{
		"before anything is read": {status.Daemon{Node: "a", Phase: "standby"}, false, "standby; nothing read yet"},
		"before the first choice": {status.Daemon{Node: "a", Phase: "standby", Elector: true, SnapshotAt: 1}, false, "standby, elector; no member is elected"},
		"no part in the group":    {status.Daemon{Phase: "standby", Membership: status.MembershipRefused, MembershipReason: "there is no group"}, false, "refused: there is no group"},
		"another leads":           {elected(status.Daemon{Phase: "standby"}, "b", "dc2", 7), false, "standby; b (site dc2) is elected in term 7"},
		"elected":                 {elected(status.Daemon{Phase: "waiting"}, "a", "dc1", 8), false, "waiting; elected in term 8"},
		"leads":                   {elected(status.Daemon{Phase: "leading", Elector: true, Term: 8}, "a", "dc1", 8), false, "leading, elector, term 8"},
		"a refused reload":        {elected(status.Daemon{Phase: "leading", Term: 8}, "a", "dc1", 8), true, "leading, term 8; the last reload was refused (see the log)"},
		"a record with intent":    {elected(status.Daemon{Phase: "standby"}, "b\nSTOPPING=1", "\x1b[31m", 7), false, "standby; b?STOPPING=1 (site ?[31m) is elected in term 7"},
	} {
		if got := line(c.v, c.refused); got != c.want {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
}

func TestStatusIsSentWhenItChanges(t *testing.T) {
	var got []string
	s := service{notify: func(m string) { got = append(got, m) }}
	s.status("waiting")
	s.status("waiting")
	s.ready("standby")
	s.status("standby")
	s.reloading()
	s.ready("standby") // a reload has an end, even if it changes nothing
	s.status("leading")
	want := []string{"STATUS=waiting", "READY=1\nSTATUS=standby", "RELOADING=1\nMONOTONIC_USEC=", "READY=1\nSTATUS=standby", "STATUS=leading"}
	for i := range got {
		if key, stamp, ok := strings.Cut(got[i], "USEC="); ok && strings.Trim(stamp, "0123456789") == "" && stamp != "" {
			got[i] = key + "USEC="
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nnot %q", got, want)
	}
}

// A host with many groups publishes its latency and how much it leads once, and its electors rank by that.
func TestLoadIsPublishedOnce(t *testing.T) {
	base := fresh()
	f := runGroups(t, base, "a", 2)
	for i := range 2 {
		f.until(fmt.Sprint("g", i), "leads", status.Daemon.Leads)
	}
	conn := initialSession(t)
	var load cluster.Stored[cluster.Load]
	var owner int64
	wait(t, "the load is published", func() bool {
		path := cluster.Loads(base) + "/a"
		data, stat, err := conn.Get(t.Context(), path, false)
		load, owner = cluster.ReadStored[cluster.Load](path, data, stat, err == nil), stat.Owner
		return load.Readable() && load.Record.Leaders == 2 && load.Record.Latency != nil
	}, func() string { return fmt.Sprintf("the load is %+v", load) })
	if owner == 0 {
		t.Error("the load does not end with the session")
	}
	path := base + "/g0/nodes/a"
	data, stat, err := conn.Get(t.Context(), path, false)
	if n := cluster.ReadStored[cluster.Node](path, data, stat, err == nil); !n.Readable() || n.Record.Latency != nil {
		t.Errorf("the record of the node is %+v", n)
	}
	if f.Host.loads.Load().known.Load() != nil {
		t.Error("it reads the loads although no policy needs them")
	}

	f.write("g0", work+"policy: {type: latency}\n")
	f.Reload()
	latency := func(name string) *float64 {
		s, err := f.group(name).State(t.Context())
		if err != nil || len(s.Members) != 1 {
			return nil
		}
		return s.Members[0].Latency
	}
	wait(t, "the elector knows the latency", func() bool { return latency("g0") != nil })
	if latency("g1") != nil {
		t.Error("a group whose policy does not need it has read it")
	}
}

func TestPlacement(t *testing.T) {
	p := newPlacement()
	woken := make(map[string]int)
	placed := func(name string, rank ...string) groupPlacement {
		return p.of(name, cluster.Rules{Rank: rank}, func() { woken[name]++ })
	}
	billing, cache, reports := placed("billing"), placed("cache", "with:billing"), placed("reports", "apart:billing", "apart:cache")
	check := func(what string, g groupPlacement, peers []string, leaders map[string]int, elected map[string]string) {
		t.Helper()
		got := g.Others(peers)
		want := elector.Placement{Load: leaders, Peers: elected, Relations: policy.Graph{
			"cache": {With: []string{"billing"}}, "reports": {Apart: []string{"billing", "cache"}},
		}}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	check("nothing is known", cache, []string{"billing", "other"}, map[string]int{}, map[string]string{"billing": ""})
	billing.Elected("n1")
	billing.Elected("n1")
	cache.Elected("n1")
	reports.Elected("n2")
	check("its own leader does not count", cache, []string{"billing"}, map[string]int{"n1": 1, "n2": 1}, map[string]string{"billing": "n1"})
	check("that of a group without a leader", placed("new"), nil, map[string]int{"n1": 2, "n2": 1}, map[string]string{})
	if !reflect.DeepEqual(woken, map[string]int{"cache": 1, "reports": 2}) {
		t.Errorf("woken: %v", woken)
	}
	cache.Elected("n3")
	check("a leader has moved", billing, nil, map[string]int{"n1": 0, "n2": 1, "n3": 1}, map[string]string{})
	cache.SetPolicy(cluster.Rules{Type: "spread"})
	if _, known := billing.Others(nil).Relations["cache"]; known {
		t.Error("the policy in force does not count")
	}
	cache.SetPolicy(cluster.Rules{Rank: []string{"with:billing"}})
	p.setElsewhere(map[string]cluster.Load{"n1": {Leaders: 1}, "n2": {Leaders: 4}, "n4": {Leaders: 2}})
	check("others have published", billing, nil, map[string]int{"n1": 0, "n2": 4, "n3": 1, "n4": 2}, map[string]string{})
	p.setElsewhere(nil)
	p.unknown("billing")
	check("a group is unknown", cache, []string{"billing"}, map[string]int{"n2": 1, "n3": 0}, map[string]string{})
	p.remove("billing")
	billing.Elected("n9")
	check("a removed group", cache, []string{"billing"}, map[string]int{"n2": 1, "n3": 0}, map[string]string{})
}

// When the host with the leaders of two groups stops, the one that follows the other moves once, to where that is
// elected.
func TestAGroupFollowsAnother(t *testing.T) {
	base := fresh()
	follower := work + "policy: {rank: ['with:g0', 'expr:member.id == \"c\"', oldest], failback: immediate}\n"
	initializeAll(t, base, 1)
	var hosts []*fleetOf
	for _, id := range []string{"a", "b", "c"} {
		f := joinGroups(t, base, id, 1)
		f.until("g0", "is a member", func(v status.Daemon) bool { return v.Elected == "a" })
		hosts = append(hosts, f)
	}
	initialize(t, base+"/g1")
	for _, f := range hosts {
		f.write("g1", follower)
		f.Reload()
		f.until("g1", "follows", func(v status.Daemon) bool { return v.Elected == "a" })
	}
	hosts[0].until("g1", "leads", status.Daemon.Leads)
	term := hosts[1].view("g1").ElectedTerm
	hosts[0].Stop("the test stops the leader")
	hosts[1].until("g0", "leads", status.Daemon.Leads)
	hosts[1].until("g1", "follows", status.Daemon.Leads)
	if v := hosts[1].view("g1"); (v.ElectedTerm-term)%64 != 1 { // as many more if the clock was ahead
		t.Errorf("it has moved %d times: %s", (v.ElectedTerm-term)%64, v.Reason)
	}
}

// A reconnect ends the pause after a registration that has failed. A group that waits for a person goes on waiting.
func TestAReconnectEndsAPause(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	m := &membership{ctx: ctx, retry: make(chan struct{}, 1), reconnected: make(chan struct{}, 1)}
	signal(m.reconnected)
	m.await(time.Hour)
	signal(m.reconnected)
	cancel()
	if m.await(0); len(m.reconnected) == 0 {
		t.Error("the group does not wait for a person any more")
	}
}
