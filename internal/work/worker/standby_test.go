package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/guard"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/test/testhelper"
	"zkelectd/internal/transition"
	"zkelectd/internal/work/probe"
	"zkelectd/internal/work/workenv"
)

// app is promotable work: a program that runs until it is killed, and a service that gets its orders.
type app struct {
	*httptest.Server
	dir    string
	orders chan string              // the bodies of the orders
	answer atomic.Pointer[[]string] // what to answer to the paths: "ok", "fail", or "hang"
}

func newApp(t *testing.T) *app {
	a := &app{dir: t.TempDir(), orders: make(chan string, 16)}
	a.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		a.orders <- r.URL.Path + " " + string(body)
		switch how := *a.answer.Load(); how[map[string]int{"/promote": 0, "/demote": 1}[r.URL.Path]] {
		case "hang":
			<-r.Context().Done()
		case "fail":
			rw.WriteHeader(http.StatusConflict)
		}
	}))
	t.Cleanup(a.Server.Close)
	a.answers("ok", "ok")
	return a
}

func (a *app) answers(promote, demote string) { a.answer.Store(&[]string{promote, demote}) }

func (a *app) spec() Spec {
	return Spec{
		Command: shell(`echo $$ >>pids; echo "$ZKELECTD_ROLE,$ZKELECTD_TERM,$ZKELECTD_NODE" >role; while :; do sleep 1000; done`), Dir: a.dir,
		Promote: Order{Setting: "child.promote", HTTP: a.URL + "/promote"}, Demote: Order{Setting: "child.demote", HTTP: a.URL + "/demote"},
		Ready: probe.Readiness{Timeout: 30 * time.Second}, StopTimeout: time.Second, StopSignal: syscall.SIGKILL,
	}
}

// pids returns the pids of all runs of the program so far.
func (a *app) pids() []string {
	data, _ := os.ReadFile(filepath.Join(a.dir, "pids"))
	return strings.Fields(string(data))
}

func (a *app) order(t *testing.T) string {
	t.Helper()
	select {
	case o := <-a.orders:
		return o
	case <-time.After(30 * time.Second):
		t.Fatal("no order")
		return ""
	}
}

// stand starts a standby.
func stand(t *testing.T, spec Spec) *Standby {
	t.Helper()
	s := NewStandby(StandbyOptions{
		Open: func() *guard.Leadership { return guardClient.NewStandby("g") }, Log: slog.New(slog.DiscardHandler), Spec: spec, Changed: func() {},
		Identity: workenv.Fencing{Node: "a", Site: "dc1", Group: "g", Root: "/g"},
	})
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// stand starts the app as a standby, and waits until it is warm and runs.
func (a *app) stand(t *testing.T) *Standby {
	t.Helper()
	s := stand(t, a.spec())
	s.until(t, cluster.StandbyWarm)
	testhelper.Eventually(t, 30*time.Second, "the program runs", func() bool { return len(a.pids()) == 1 })
	return s
}

// until waits for a state of the work.
func (s *Standby) until(t *testing.T, state string) {
	t.Helper()
	testhelper.Eventually(t, 30*time.Second, "the standby is "+state, func() bool { return s.State().State == state })
}

// promoter returns a worker that promotes s, with a lease, and its events.
func promoter(t *testing.T, s *Standby, spec Spec, lease time.Duration) (*Worker, <-chan transition.Event) {
	t.Helper()
	g := guardClient.NewLeadership("g")
	events := make(chan transition.Event, 16)
	w := New(Options{
		Guard: g, Log: slog.New(slog.DiscardHandler), Spec: spec, Standby: s, Report: func(ev transition.Event) { events <- ev },
		Fencing: func(term int64) workenv.Fencing {
			return workenv.Fencing{Node: "a", Site: "dc1", Group: "g", Root: "/g", Term: fmt.Sprint(term)}
		},
	})
	deadline := boottime.Now() + lease
	g.SetLease(deadline)
	w.SetLease(deadline)
	t.Cleanup(func() {
		w.Kill()
		w.Wait()
		g.Close()
	})
	return w, events
}

// promoted starts the work of w, and waits until it is ready.
func promoted(t *testing.T, w *Worker, events <-chan transition.Event) {
	t.Helper()
	expect(t, w.Start(7), transition.ChildStarted{})
	expect(t, []transition.Event{next(t, events)}, transition.ChildReady{})
}

// dead waits until the leadership has ended, and returns the status of the child. A failure may precede it.
func dead(t *testing.T, events <-chan transition.Event) string {
	t.Helper()
	for {
		switch ev := next(t, events).(type) {
		case transition.ChildDead:
			if ev.Unused != (ev.Status == "was not promoted") {
				t.Errorf("%+v", ev)
			}
			return ev.Status
		case transition.ChildFailed:
		default:
			t.Fatalf("%#v", ev)
		}
	}
}

// lease returns how long the work may run.
func (s *Standby) lease() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guard.Lease()
}

// The same process is a standby, leads, and is a standby again, for longer than the lease.
func TestPromotion(t *testing.T) {
	a := newApp(t)
	s := a.stand(t)
	w, events := promoter(t, s, a.spec(), time.Minute)
	if s.lease() != guard.Forever {
		t.Error("a standby has a lease")
	}
	promoted(t, w, events)
	var got workenv.Fencing
	path, body, _ := strings.Cut(a.order(t), " ")
	if err := json.Unmarshal([]byte(body), &got); err != nil || path != "/promote" || got.Role != "leader" || got.Term != "7" || got.Node != "a" {
		t.Errorf("the order is %s %s: %v", path, body, err)
	}
	if limit := boottime.Now() + time.Minute; s.lease() > limit {
		t.Error("the work leads without a lease")
	}
	w.Stop(30 * time.Second)
	if status := dead(t, events); status != "was demoted" {
		t.Errorf("it %s", status)
	}
	if o := a.order(t); !strings.HasPrefix(o, "/demote ") || !strings.Contains(o, `"role":"standby"`) {
		t.Errorf("the order is %s", o)
	}
	if s.lease() != guard.Forever {
		t.Error("it is killed although it was demoted")
	}
	promoted(t, w, events) // again
	if pids := a.pids(); len(pids) != 1 {
		t.Errorf("the runs are %v", pids)
	}
	testhelper.Eventually(t, 30*time.Second, "the environment of a standby", func() bool {
		role, err := os.ReadFile(filepath.Join(a.dir, "role"))
		return err == nil && string(role) == "standby,,a\n"
	})
}

// Work that does not obey, or whose promotion was not answered, is killed, and starts again as a standby (S1).
func TestWorkThatMayStillLeadIsKilled(t *testing.T) {
	for name, c := range map[string]struct {
		promote, demote string
		grace           time.Duration
		stops           bool // while the promotion is under way
	}{
		"a failed demotion":       {"ok", "fail", 30 * time.Second, false},
		"a demotion that hangs":   {"ok", "hang", 50 * time.Millisecond, false},
		"no time to demote":       {"ok", "ok", 0, false},
		"a promotion that hangs":  {"hang", "ok", 30 * time.Second, true},
		"a promotion that failed": {"fail", "ok", 30 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := newApp(t)
			a.answers(c.promote, c.demote)
			s := a.stand(t)
			w, events := promoter(t, s, a.spec(), time.Minute)
			if c.stops {
				expect(t, w.Start(7), transition.ChildStarted{})
				a.order(t)
			} else {
				promoted(t, w, events)
			}
			w.Stop(c.grace)
			if status := dead(t, events); !strings.Contains(status, "killed") {
				t.Errorf("it %s", status)
			}
			testhelper.Eventually(t, 30*time.Second, "a new standby", func() bool { return len(a.pids()) == 2 && s.State().State == cluster.StandbyWarm })
			if s.lease() != guard.Forever {
				t.Error("the new standby has a lease")
			}
		})
	}
}

// The guard kills promoted work at the end of its lease, whatever this process does (S1). A renewal extends that.
func TestPromotedWorkDiesWithItsLease(t *testing.T) {
	a := newApp(t)
	s := a.stand(t)
	w, events := promoter(t, s, a.spec(), time.Minute)
	promoted(t, w, events)
	end := boottime.Now() + 300*time.Millisecond
	w.SetLease(end)
	if status := dead(t, events); !strings.Contains(status, "killed") || boottime.Now() < end {
		t.Errorf("it %s", status)
	}
}

// When the order to lead arrives, the guard enforces the lease: nothing that happens to this process can make the work outlive it (S1).
func TestTheGuardHasTheLeaseBeforeThePromotion(t *testing.T) {
	a := newApp(t)
	s := a.stand(t)
	w, _ := promoter(t, s, a.spec(), time.Minute)
	expect(t, w.Start(7), transition.ChildStarted{})
	a.order(t)
	s.mu.Lock()
	enforced := s.guard.EnforcedLease()
	s.mu.Unlock()
	if enforced == 0 || enforced > boottime.Now()+time.Minute {
		t.Errorf("the guard enforces %s", enforced)
	}
}

// Without a lease that the guard enforces, there is no order to lead: nothing would kill the work in time (S1).
func TestNoPromotionWithoutALease(t *testing.T) {
	a := newApp(t)
	s := a.stand(t)
	w, events := promoter(t, s, a.spec(), -time.Millisecond)
	expect(t, w.Start(7), transition.ChildStarted{})
	if status := dead(t, events); status != "was not promoted" || len(a.orders) != 0 {
		t.Errorf("it %s, %d orders", status, len(a.orders))
	}
}

// An end before the promotion leaves the standby alone.
func TestAStandbyThatWasNotPromotedStays(t *testing.T) {
	a := newApp(t)
	spec := a.spec()
	spec.Warm = probe.Watch{Target: probe.Target{Exec: shell("echo not yet >&2; exit 1")}, Section: "child.warm", Interval: 10 * time.Millisecond, Timeout: 10 * time.Second}
	s := stand(t, spec)
	s.until(t, cluster.StandbyWarming)
	w, events := promoter(t, s, spec, time.Minute)
	expect(t, w.Start(7), transition.ChildStarted{})
	testhelper.Eventually(t, 30*time.Second, "the program runs, and the check has failed", func() bool {
		return len(a.pids()) == 1 && strings.Contains(s.State().Reason, "not yet")
	})
	w.Stop(30 * time.Second)
	if status := dead(t, events); status != "was not promoted" {
		t.Errorf("it %s", status)
	}
	spec.Ready.Timeout = 50 * time.Millisecond
	impatient, failed := promoter(t, s, spec, time.Minute)
	expect(t, impatient.Start(8), transition.ChildStarted{})
	if ev, ok := next(t, failed).(transition.ChildFailed); !ok || !strings.Contains(ev.Err.Error(), "not yet") {
		t.Errorf("%#v", ev)
	}
	if status := dead(t, failed); status != "was not promoted" || len(a.pids()) != 1 || len(a.orders) != 0 {
		t.Errorf("it %s, runs %v, %d orders", status, a.pids(), len(a.orders))
	}
}

// A leader whose process ends is reported as any child, and starts again.
func TestPromotedWorkThatExits(t *testing.T) {
	a := newApp(t)
	s := a.stand(t)
	w, events := promoter(t, s, a.spec(), time.Minute)
	promoted(t, w, events)
	s.mu.Lock()
	syscall.Kill(s.work.Pid(), syscall.SIGKILL)
	s.mu.Unlock()
	if status := dead(t, events); !strings.Contains(status, "killed") {
		t.Errorf("it %s", status)
	}
	promoted(t, w, events)
}

// The orders can be commands, which the guard runs under the lease.
func TestOrdersAsCommands(t *testing.T) {
	a := newApp(t)
	spec := a.spec()
	file := filepath.Join(a.dir, "orders")
	note := `echo "$ZKELECTD_ROLE $ZKELECTD_TERM" >>` + file
	spec.Promote, spec.Demote = Order{Setting: "child.promote", Exec: shell(note)}, Order{Setting: "child.demote", Exec: shell(note)}
	s := stand(t, spec)
	s.until(t, cluster.StandbyWarm)
	w, events := promoter(t, s, spec, time.Minute)
	promoted(t, w, events)
	w.Stop(30 * time.Second)
	if status := dead(t, events); status != "was demoted" {
		t.Errorf("it %s", status)
	}
	if data, err := os.ReadFile(file); string(data) != "leader 7\nstandby 7\n" {
		t.Errorf("the orders are %q: %v", data, err)
	}
	spec.Demote.Exec = shell("echo busy; exit 3")
	other, events := promoter(t, s, spec, time.Minute)
	promoted(t, other, events)
	other.Stop(30 * time.Second)
	if status := dead(t, events); !strings.Contains(status, "killed") {
		t.Errorf("it %s", status)
	}
}

// A worker of an abandoned instance, which may be stuck, neither keeps nor gets the work (S1). The next one does.
func TestAbandonedWorkers(t *testing.T) {
	a := newApp(t)
	s := a.stand(t)
	w, events := promoter(t, s, a.spec(), time.Minute)
	idle, idleEvents := promoter(t, s, a.spec(), time.Minute)
	promoted(t, w, events)
	if !s.Abandon(t.Context()) {
		t.Error("the death of the work is not proven")
	}
	if pids := a.pids(); len(pids) != 1 || syscall.Kill(number(t, pids[0]), 0) == nil {
		t.Errorf("the work of an abandoned instance is alive: %v", pids)
	}
	dead(t, events)
	a.order(t)
	for _, old := range []struct {
		w      *Worker
		events <-chan transition.Event
	}{{w, events}, {idle, idleEvents}} {
		expect(t, old.w.Start(8), transition.ChildStarted{})
		if status := dead(t, old.events); status != "was not promoted" || len(a.orders) != 0 {
			t.Errorf("an abandoned worker: it %s", status)
		}
	}
	other, events := promoter(t, s, a.spec(), time.Minute)
	promoted(t, other, events)
}

func number(t *testing.T, text string) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A host leads one slot with its standby.
func TestOneSlotLeads(t *testing.T) {
	a := newApp(t)
	s := a.stand(t)
	w, events := promoter(t, s, a.spec(), time.Minute)
	promoted(t, w, events)
	other, refused := promoter(t, s, a.spec(), time.Minute)
	expect(t, other.Start(8), transition.ChildStarted{})
	if ev, ok := next(t, refused).(transition.ChildFailed); !ok || !errors.Is(ev.Err, errOtherLeads) {
		t.Errorf("%#v", ev)
	}
	dead(t, refused)
	other.SetLease(0) // which must not end the work of the other slot
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	select {
	case ev := <-events:
		t.Errorf("%#v", ev)
	case <-ctx.Done():
	}
}

// The work starts again only when the order to its last process is over: it could reach the new one, which has no lease (S1).
func TestTheNextStandbyWaitsForTheLastOrder(t *testing.T) {
	a := newApp(t)
	a.answers("hang", "ok")
	s := a.stand(t)
	w, events := promoter(t, s, a.spec(), time.Minute)
	expect(t, w.Start(7), transition.ChildStarted{})
	a.order(t)
	late := &promotion{worker: w}
	s.mu.Lock()
	leader := s.leader
	s.leader = late // as if the order took its time to end
	syscall.Kill(s.work.Pid(), syscall.SIGKILL)
	s.mu.Unlock()
	dead(t, events)
	<-leader.over
	testhelper.Eventually(t, 30*time.Second, "the end of the process", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.work == nil
	})
	wait := time.NewTimer(4 * standbyPause)
	defer wait.Stop()
	<-wait.C
	if pids := a.pids(); len(pids) != 1 {
		t.Errorf("the runs are %v", pids)
	}
	s.release(late)
	testhelper.Eventually(t, 30*time.Second, "the next process", func() bool { return len(a.pids()) == 2 })
}

// Work can notify that it is warm.
func TestAStandbyNotifiesThatItIsWarm(t *testing.T) {
	a := newApp(t)
	spec := a.spec()
	spec.WarmNotify = true
	warm := filepath.Join(a.dir, "warm")
	spec.Command = []string{"/proc/self/exe"} // see notifyWarm
	s := stand(t, spec)
	testhelper.Eventually(t, 30*time.Second, "the program runs", func() bool { return len(a.pids()) == 1 && strings.Contains(s.State().Reason, "READY=1") })
	if err := os.WriteFile(warm, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.until(t, cluster.StandbyWarm)
}
