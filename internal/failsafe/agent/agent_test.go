package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/test/testhelper"
	"zkelectd/internal/transition/failsafe"
)

const root = "/zkelectd/app"

var secrets = [][]byte{bytes.Repeat([]byte{7}, 32)}

// budget is that of a session timeout of 2 s; the patience is 150 ms.
func budget(t *testing.T) cluster.Budget {
	t.Helper()
	b, err := cluster.NewBudget(2*time.Second, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// daemon is an agent that is served.
type daemon struct {
	*Agent
	http *httptest.Server
}

func (d *daemon) incarnation() string { return d.opt.Node + "-0000000000000001-n_0000000001" }

func start(t *testing.T, id string) *daemon {
	t.Helper()
	d := &daemon{}
	var err error
	d.Agent, err = Open(Options{
		Node: id, StateDir: filepath.Join(t.TempDir(), "state"), Clock: boottime.Now, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.SetBudget(budget(t)); err != nil {
		t.Fatal(err)
	}
	d.http = httptest.NewServer(d.Handler())
	t.Cleanup(func() {
		d.http.Close()
		d.Close()
	})
	d.Promises().Register(root+"/leader", d.incarnation())
	return d
}

// join makes the daemons members of one group.
func join(daemons ...*daemon) {
	for _, d := range daemons {
		g := Group{Paths: cluster.Paths{Root: root}, Enabled: true, Self: d.incarnation(), Secrets: secrets}
		for _, o := range daemons {
			if o != d {
				g.Peers = append(g.Peers, Peer{o.opt.Node, o.incarnation(), &cluster.FailsafeNode{Key: o.Key(), Address: o.http.Listener.Addr().String()}})
			}
		}
		d.SetGroup(g)
	}
}

// round asks members of n1's group for promises until a reply comes that is as wanted.
func round(t *testing.T, from *daemon, change func(*failsafe.Message), ok func(failsafe.Reply) bool, to ...*daemon) {
	t.Helper()
	rounds := failsafe.NewRounds(failsafe.RoundsOptions{
		Group: root + "/leader", Term: 8, Holder: from.incarnation(), Start: 1, Lease: budget(t).Lease, Wait: budget(t).LeaseWait,
	})
	var set failsafe.Set
	for _, d := range to {
		set.Members = append(set.Members, cluster.FailsafeMember{ID: d.opt.Node, Incarnation: d.incarnation(), Key: d.Key()})
	}
	rounds.Acknowledged(set)
	replies := make(chan failsafe.Reply, 1000)
	limit := time.After(20 * time.Second)
	var last failsafe.Reply
	for {
		messages := rounds.Begin(boottime.Now())
		for i := range messages {
			messages[i].Address = to[i].http.Listener.Addr().String()
			change(&messages[i])
		}
		from.Send(cluster.Paths{Root: root}, messages, time.Second, func(r failsafe.Reply) { replies <- r })
		again := time.After(50 * time.Millisecond)
	waiting:
		for {
			select {
			case last = <-replies:
				if ok(last) {
					return
				}
			case <-again:
				break waiting
			case <-limit:
				t.Fatalf("no such reply; the last one: %+v", last)
			}
		}
	}
}

func unchanged(*failsafe.Message) {}

func promised(r failsafe.Reply) bool { return r.OK }

func refusedFor(reason failsafe.Reason) func(failsafe.Reply) bool {
	return func(r failsafe.Reply) bool { return !r.OK && r.Reason == reason }
}

// A member promises once a write of its own has been without an answer for long enough, and not while ZooKeeper answers it.
func TestRound(t *testing.T) {
	a, b, c := start(t, "n1"), start(t, "n2"), start(t, "n3")
	join(a, b, c)
	b.SetProbe(func(context.Context) error { return nil })
	c.SetProbe(func(context.Context) error { return cluster.ErrUnknown })
	round(t, a, unchanged, refusedFor(failsafe.ReasonContact), b)
	round(t, a, unchanged, promised, c)
	b.SetProbe(func(ctx context.Context) error { // the write is never answered
		<-ctx.Done()
		return cluster.ErrUnknown
	})
	round(t, a, unchanged, promised, b)
	b.SetProbe(nil)
	c.SetProbe(nil)
	round(t, a, unchanged, promised, b, c)
	if b.Promises().Bound(root+"/leader") < boottime.Now() || c.Promises().Bound(root+"/leader") < boottime.Now() {
		t.Error("a promise was given that binds nobody")
	}
}

func TestRoundForAnotherIncarnation(t *testing.T) {
	a, b := start(t, "n1"), start(t, "n2")
	join(a, b)
	round(t, a, func(m *failsafe.Message) { m.Member = "n2-0000000000000001-n_0000000000" }, refusedFor(failsafe.ReasonIncarnation), b)
}

// A message that cannot be sent, or is not answered, has a reply, too: the leader and people must know.
func TestUnreachableMembers(t *testing.T) {
	a, b := start(t, "n1"), start(t, "n2")
	unreachable := refusedFor(failsafe.ReasonUnreachable)
	round(t, a, unchanged, unreachable, b) // a does not know the group
	a.SetGroup(Group{Paths: cluster.Paths{Root: root}, Enabled: true, Self: a.incarnation(), Secrets: secrets})
	round(t, a, func(m *failsafe.Message) { m.Address = "" }, unreachable, b)
	round(t, a, func(m *failsafe.Message) { m.Address = "127.0.0.1:1" }, unreachable, b)
	round(t, a, unchanged, unreachable, b) // b does not know the group
	join(a, b)
	round(t, a, unchanged, promised, b)
	g := *a.group(root)
	g.Peers = nil // the leader's own reading counts
	a.SetGroup(g)
	round(t, a, unchanged, promised, b)
}

// What concerns another group, or comes from another daemon than its holder, is not even judged.
func TestForeignRequests(t *testing.T) {
	a, b := start(t, "n1"), start(t, "n2")
	join(a, b)
	b.SetProbe(nil)
	good := failsafe.Request{Group: root + "/leader", Term: 8, Holder: a.incarnation(), Member: b.incarnation(), Round: 1, Start: 1}
	for name, change := range map[string]func(*failsafe.Request){
		"another group":    func(r *failsafe.Request) { r.Group = "/zkelectd/other/leader" },
		"below the group":  func(r *failsafe.Request) { r.Group = root + "/leader/elected" },
		"a slot":           func(r *failsafe.Request) { r.Group = root + "/slots/1" },
		"another holder":   func(r *failsafe.Request) { r.Holder = "n3-0000000000000001-n_0000000001" },
		"no holder":        func(r *failsafe.Request) { r.Holder = "" },
		"a dry run inside": func(r *failsafe.Request) { r.Dry = true },
	} {
		r := good
		change(&r)
		if got, err := b.answer("round", "n1", root, question{request: r}.body()); err == nil {
			t.Errorf("%s: answered %s", name, got)
		}
	}
	if _, err := b.answer("round", "n1", root, []byte(`{"group":"`+root+`/leader","later":1}`)); err == nil {
		t.Error("a field of a later version was ignored")
	}
	if _, err := b.answer("probe", "n1", root, question{request: good}.body()); err == nil {
		t.Error("a probe asked for a promise")
	}
	if got, err := b.answer("round", "n1", root, question{request: good}.body()); err != nil {
		t.Errorf("the unchanged request: %s, %v", got, err)
	}
}

func awaitReadiness(t *testing.T, d *daemon, ok func(status.Failsafe) bool) {
	t.Helper()
	testhelper.Eventually(t, 30*time.Second, "readiness", func() bool { return ok(d.Readiness(root)) }, func() string {
		return fmt.Sprintf("%s: %+v", d.opt.Node, d.Readiness(root))
	})
}

// The dry run names each member that would not promise, and why, before there is an outage. It binds nobody.
func TestReadiness(t *testing.T) {
	a, b, c := start(t, "n1"), start(t, "n2"), start(t, "n3")
	if r := a.Readiness(root); r.Enabled || r.Ready {
		t.Errorf("without the group: %+v", r)
	}
	a.SetGroup(Group{Paths: cluster.Paths{Root: root}, Enabled: true, Self: a.incarnation(), Secrets: secrets})
	if r := a.Readiness(root); !r.Enabled || r.Ready || !strings.Contains(r.Problem, "no other member") {
		t.Errorf("alone: %+v", r)
	}
	join(a, b, c)
	for _, d := range []*daemon{a, b, c} {
		awaitReadiness(t, d, func(r status.Failsafe) bool { return r.Ready && r.Enabled })
	}
	if bound := b.Promises().Bound(root + "/leader"); bound > boottime.Now()+budget(t).LeaseWait/2 {
		t.Logf("bound until %s", bound) // by its start only
	}
	b.http.Close()
	c.Promises().Register(root+"/leader", "n3-0000000000000001-n_0000000009")
	a.tryAll()
	awaitReadiness(t, a, func(r status.Failsafe) bool {
		return !r.Ready && strings.Contains(r.Unready["n2"], "does not answer") && strings.Contains(r.Unready["n3"], "registered again")
	})
	g := *a.group(root)
	g.Peers = []Peer{{ID: "n4", Incarnation: "n4-0000000000000001-n_0000000004"}}
	a.SetGroup(g)
	awaitReadiness(t, a, func(r status.Failsafe) bool {
		return !r.Ready && len(r.Unready) == 1 && strings.Contains(r.Unready["n4"], "takes no part")
	})
}

func TestReadinessWithoutTheKey(t *testing.T) {
	a, b := start(t, "n1"), start(t, "n2")
	join(a, b)
	g := *b.group(root)
	g.Secrets, g.SecretsErr = nil, errors.New("the tree is open")
	b.SetGroup(g)
	awaitReadiness(t, a, func(r status.Failsafe) bool {
		return !r.Ready && strings.Contains(r.Unready["n2"], "has not read the group's key")
	})
	if r := b.Readiness(root); r.Ready || r.Problem != "the tree is open" {
		t.Errorf("%+v", r)
	}
}

// A veto is refused while the member is bound, and does not follow by itself: by then the leader may have been heard again.
func TestVetoIsRefusedWhileBound(t *testing.T) {
	a, b := start(t, "n1"), start(t, "n2")
	join(a, b)
	round(t, a, unchanged, promised, b)
	bound := b.Promises().Bound(root + "/leader")
	until, err := b.Veto(root+"/leader", 8)
	if until < bound || err != nil {
		t.Errorf("bound until %s, want %s: %v", until, bound, err)
	}
	for until != 0 && err == nil { // a message that was under way may have bound it again
		<-time.After(until - boottime.Now())
		if got := b.Promises().Vetoed(root + "/leader"); got != 0 {
			t.Fatalf("term %d is vetoed, and nobody has asked for that since it was bound", got)
		}
		until, err = b.Veto(root+"/leader", 8)
	}
	if err != nil || boottime.Now() < bound {
		t.Errorf("%v, %s before the promise was over", err, bound-boottime.Now())
	}
	if state, err := readState(b.dir); err != nil || state.Vetoed[root+"/leader"] != 8 {
		t.Errorf("stored %+v, %v", state, err)
	}
	round(t, a, unchanged, refusedFor(failsafe.ReasonVetoed), b)
}

func TestStateSurvives(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	open := func() *Agent {
		t.Helper()
		a, err := Open(Options{Node: "n1", StateDir: dir, Clock: boottime.Now, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a := open()
	key := a.Key()
	if err := a.SetBudget(budget(t)); err != nil {
		t.Fatal(err)
	}
	// Two groups veto at the same time, and the older state is stored last.
	older := failsafe.State{Key: key, Vetoed: map[string]int64{"/a": 5}}
	newer := failsafe.State{Key: key, Vetoed: map[string]int64{"/a": 5, "/b": 7}}
	for _, s := range []failsafe.State{newer, older} {
		if err := a.Remember(s); err != nil {
			t.Fatal(err)
		}
	}
	a.Close()
	a = open()
	if a.Key() != key || a.Promises().Vetoed("/a") != 5 || a.Promises().Vetoed("/b") != 7 {
		t.Errorf("key %s, vetoed %d, %d", a.Key(), a.Promises().Vetoed("/a"), a.Promises().Vetoed("/b"))
	}
	if bound := a.Promises().Bound("/a") - boottime.Now(); bound <= 0 || bound > budget(t).LeaseWait {
		t.Errorf("after the restart it is bound for %s", bound)
	}
	a.Close()
	if err := os.Remove(filepath.Join(dir, stateFile)); err != nil {
		t.Fatal(err)
	}
	a = open()
	defer a.Close()
	if a.Key() == key || a.Key() == "" {
		t.Errorf("a directory without the file has the key %q, as before %q", a.Key(), key)
	}
}

// A process that no longer has its state directory to itself promises nothing: the one that has it now would not be bound by that.
func TestNoPromiseWithoutTheLock(t *testing.T) {
	a, b := start(t, "n1"), start(t, "n2")
	join(a, b)
	round(t, a, unchanged, promised, b)
	if err := os.Remove(filepath.Join(b.opt.StateDir, "state.lock")); err != nil {
		t.Fatal(err)
	}
	other, err := Open(Options{Node: "n2", StateDir: b.opt.StateDir, Clock: boottime.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	last := b.Promises().Bound(root + "/leader")
	round(t, a, unchanged, refusedFor(failsafe.ReasonUnreachable), b)
	if now := other.Promises().Bound(root + "/leader"); now < last {
		t.Errorf("the new process is free %s before the promise of the old one is over", last-now)
	}
	if b.Promises().Bound(root+"/leader") != last {
		t.Error("it has promised something again")
	}
	a.tryAll()
	awaitReadiness(t, a, func(r status.Failsafe) bool {
		return strings.Contains(r.Unready["n2"], "another zkelectd may use the state directory")
	})
}

// A request that arrives while the daemon ends is refused: the next process may have the state directory already.
func TestNoPromiseAfterClose(t *testing.T) {
	a, b := start(t, "n1"), start(t, "n2")
	join(a, b)
	round(t, a, unchanged, promised, b)
	b.Close()
	r := failsafe.Request{Group: root + "/leader", Term: 8, Holder: a.incarnation(), Member: b.incarnation(), Round: 1, Start: 1}
	if got, err := b.answer("round", "n1", root, question{request: r}.body()); err == nil {
		t.Errorf("answered %s", got)
	}
}

// Who has left, or is at another address now, is not waited for with a goroutine for ever.
func TestSendersEnd(t *testing.T) {
	a, b, c := start(t, "n1"), start(t, "n2"), start(t, "n3")
	join(a, b, c)
	round(t, a, unchanged, promised, b, c)
	senders := func() (to []string, all []*sender) {
		a.mu.Lock()
		defer a.mu.Unlock()
		for d, s := range a.senders {
			to, all = append(to, d.node), append(all, s)
		}
		return to, all
	}
	to, all := senders()
	if len(to) != 2 {
		t.Fatalf("senders to %v", to)
	}
	g := *a.group(root)
	g.Peers = slices.DeleteFunc(slices.Clone(g.Peers), func(p Peer) bool { return p.ID == "n3" })
	a.SetGroup(g)
	if to, _ := senders(); len(to) != 1 || to[0] != "n2" {
		t.Errorf("after n3 has left: senders to %v", to)
	}
	round(t, a, unchanged, promised, b, c) // c may still have to promise
	a.RemoveGroup(root)
	if to, _ := senders(); len(to) != 0 {
		t.Errorf("without the group: senders to %v", to)
	}
	for _, s := range all {
		<-s.gone
	}
}

func TestTookPart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	took := func(want bool, group string) {
		t.Helper()
		if got, err := TookPart(dir, group); err != nil || got != want {
			t.Errorf("%s: %t, %v", group, got, err)
		}
	}
	took(false, "/a")
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory was created: %v", err)
	}
	a, err := Open(Options{Node: "n1", StateDir: dir, Clock: boottime.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	took(false, "/a")
	if err := errors.Join(a.SetBudget(budget(t)), a.TakePart("/a"), a.TakePart("/b")); err != nil {
		t.Fatal(err)
	}
	took(true, "/a") // although it is locked
	a.Close()
	took(true, "/b")
	took(false, "/c")
	old := failsafe.State{Key: "k", Wait: 1}
	if err := os.WriteFile(filepath.Join(dir, stateFile), old.Encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	took(true, "/c") // nobody knows
	if err := os.WriteFile(filepath.Join(dir, stateFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := TookPart(dir, "/a"); err == nil || got {
		t.Errorf("damaged: %t, %v", got, err)
	}
}

// A directory that the daemon may not read says nothing: its owner may just have changed.
func TestTookPartWithoutPermission(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o000); err != nil {
		t.Fatal(err)
	}
	var got bool
	var err error
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		runtime.LockOSThread()         // and never unlocked, so that the thread ends with this function
		unix.SetfsuidRetUid(1<<16 - 2) // root may read anything
		got, err = TookPart(dir, "/a")
	}()
	<-asked
	if got || !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), filepath.Join(dir, stateFile)) {
		t.Errorf("%t, %v", got, err)
	}
}

// A state that cannot be read is refused, and left as it is.
func TestDamagedState(t *testing.T) {
	for name, text := range map[string]string{"empty": "", "truncated": `{"v":1,"key":"X`, "newer": `{"v":2,"key":"X"}`, "without a key": `{"v":1}`} {
		dir := filepath.Join(t.TempDir(), "state")
		path := filepath.Join(dir, stateFile)
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the lock is not kept
			a, err := Open(Options{Node: "n1", StateDir: dir, Clock: boottime.Now})
			if err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v, %v", name, a, err)
			}
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != text {
			t.Errorf("%s: the file is %q, %v", name, data, err)
		}
	}
}

// The race detector must find nothing if a group is removed while the result of a dry run is published.
func TestGroupRemovedDuringADryRun(t *testing.T) {
	a := start(t, "n1")
	published := make(chan struct{})
	go func() {
		defer close(published)
		for range 1000 {
			a.setResults(map[string]map[string]string{root: {}})
		}
	}()
	for {
		select {
		case <-published:
			return
		default:
			a.RemoveGroup(root)
		}
	}
}
