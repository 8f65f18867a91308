package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/guard"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/test/testhelper"
	"zkelectd/internal/transition"
	"zkelectd/internal/work/probe"
	"zkelectd/internal/work/workenv"
)

// recordingGuard records the pending hooks.
type recordingGuard struct {
	*guard.Leadership
	pending []guard.Spec
	calls   int
}

func (g *recordingGuard) SetPendingHooks(specs ...guard.Spec) error {
	g.pending, g.calls = specs, g.calls+1
	return nil
}

// start returns a worker with a lease, its guard, and the channel of its events.
func start(t *testing.T, spec Spec) (*Worker, *recordingGuard, <-chan transition.Event) {
	t.Helper()
	g := &recordingGuard{Leadership: guardClient.NewLeadership("g")}
	g.SetLease(boottime.Now() + time.Minute)
	events := make(chan transition.Event, 16)
	w := New(Options{
		Guard: g, Log: slog.New(slog.DiscardHandler), Spec: spec, HookTimeout: time.Second, Report: func(ev transition.Event) { events <- ev },
		Fencing: func(term int64) workenv.Fencing {
			return workenv.Fencing{Node: "a", Site: "dc1", Group: "g", Root: "/g", Term: fmt.Sprint(term)}
		},
	})
	t.Cleanup(func() {
		w.Kill()
		w.Wait()
		g.Close()
	})
	return w, g, events
}

// next returns the next event that is reported.
func next(t *testing.T, events <-chan transition.Event) transition.Event {
	t.Helper()
	select {
	case ev := <-events:
		return ev
	case <-time.After(30 * time.Second):
		t.Fatal("nothing is reported")
		return nil
	}
}

func expect(t *testing.T, got []transition.Event, want ...transition.Event) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %#v, want %#v", got, want)
	}
}

func shell(script string) []string { return []string{"sh", "-c", script} }

func TestNothingToRunIsDoneAtOnce(t *testing.T) {
	w, g, _ := start(t, Spec{})
	expect(t, w.PreStart(7), transition.HookDone{})
	expect(t, w.Start(7), transition.ChildReady{})
	expect(t, w.PostStop(t.Context(), 7), transition.HookDone{})
	w.SetPendingHooks(7, nil)
	w.ClearPendingHooks()
	w.Stop(time.Second)
	w.Kill()
	if g.calls != 0 {
		t.Errorf("the guard gets %v", g.pending)
	}
}

func TestHooks(t *testing.T) {
	for name, c := range map[string]struct {
		hooks     Hooks
		pre, post string // their errors
	}{
		"succeed":         {Hooks{PreStart: shell(`test "$ZKELECTD_TERM" = 7 && test "$X" = y`), PostStop: shell(`test "$ZKELECTD_TERM" = 7`), Timeout: 30 * time.Second}, "", ""},
		"fail":            {Hooks{PreStart: shell("echo no disk; exit 3"), PostStop: shell("exit 4"), Timeout: 30 * time.Second}, "hooks.pre_start sh failed: exited with status 3: no disk", "hooks.post_stop"},
		"take too long":   {Hooks{PreStart: shell("sleep 1000"), PostStop: shell("sleep 1000"), Timeout: 50 * time.Millisecond}, "hooks.pre_start sh failed: not done within 50ms", "hooks.post_stop"},
		"cannot be found": {Hooks{PreStart: []string{"/no/hook"}, PostStop: []string{"/no/hook"}, Timeout: 30 * time.Second}, "hooks.pre_start /no/hook failed", "hooks.post_stop"},
	} {
		t.Run(name, func(t *testing.T) {
			w, _, events := start(t, Spec{Hooks: c.hooks, Env: map[string]string{"X": "y"}})
			check := func(what string, at []transition.Event, want string) {
				t.Helper()
				if len(at) == 0 {
					at = append(at, next(t, events))
				}
				done, ok := at[0].(transition.HookDone)
				if !ok || (done.Err == nil) != (want == "") || done.Err != nil && !strings.Contains(done.Err.Error(), want) {
					t.Errorf("%s: %#v", what, at)
				}
			}
			check("pre_start", w.PreStart(7), c.pre)
			check("post_stop", w.PostStop(t.Context(), 7), c.post)
		})
	}
}

// Stop kills a hook at once.
func TestStopKillsPreStart(t *testing.T) {
	w, _, events := start(t, Spec{Hooks: Hooks{PreStart: shell("trap '' TERM; sleep 1000"), Timeout: time.Hour}})
	expect(t, w.PreStart(7))
	w.Stop(time.Hour)
	if done, ok := next(t, events).(transition.HookDone); !ok || done.Err == nil {
		t.Errorf("%#v", done)
	}
}

func TestProcess(t *testing.T) {
	w, _, events := start(t, Spec{Command: shell(`trap 'exit 3' TERM; echo "$ZKELECTD_TERM" >term; while :; do sleep 0.01; done`), Dir: t.TempDir()})
	expect(t, w.Start(7), transition.ChildStarted{}, transition.ChildReady{})
	file := filepath.Join(w.opt.Spec.Dir, "term")
	testhelper.Eventually(t, 30*time.Second, "the child has written its term", func() bool {
		data, err := os.ReadFile(file)
		return err == nil && string(data) == "7\n"
	})
	w.Stop(30 * time.Second)
	expect(t, []transition.Event{next(t, events)}, transition.ChildDead{Status: "exited with status 3"})
	expect(t, w.Start(8), transition.ChildStarted{}, transition.ChildReady{}) // again
	w.Kill()
	if dead, ok := next(t, events).(transition.ChildDead); !ok || !strings.Contains(dead.Status, "killed") {
		t.Errorf("%#v", dead)
	}
}

func TestProcessThatCannotBeStarted(t *testing.T) {
	w, _, _ := start(t, Spec{Command: []string{"/no/such/program"}})
	got := w.Start(7)
	failed, ok := got[0].(transition.ChildFailed)
	if len(got) != 1 || !ok || !strings.Contains(failed.Err.Error(), `child.command "/no/such/program" cannot be started`) {
		t.Errorf("%#v", got)
	}
}

func TestReadinessAndLiveness(t *testing.T) {
	ready := func(argv ...string) probe.Readiness {
		return probe.Readiness{Target: probe.Target{Exec: argv}, Timeout: 200 * time.Millisecond}
	}
	live := probe.Watch{Target: probe.Target{Exec: []string{"false"}}, Section: "child.live", Interval: 10 * time.Millisecond, Timeout: time.Second, Rise: 1, Fall: 2}
	for name, c := range map[string]struct {
		spec Spec
		want []string // the first events
	}{
		"ready":                     {Spec{Ready: ready("true")}, []string{"transition.ChildReady"}},
		"never ready":               {Spec{Ready: ready("false")}, []string{"transition.ChildFailed: the child was not ready within 200ms"}},
		"ready, and serves no more": {Spec{Ready: ready("true"), Live: live}, []string{"transition.ChildReady", "transition.ChildFailed: child.live.exec false"}},
		"does not notify":           {Spec{Ready: probe.Readiness{Notify: true, Timeout: time.Millisecond}}, []string{"transition.ChildFailed: the child was not ready within 1ms"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.spec.Command = []string{"sleep", "1000"}
			w, _, events := start(t, c.spec)
			expect(t, w.Start(7), transition.ChildStarted{})
			for _, want := range c.want {
				ev := next(t, events)
				got := fmt.Sprintf("%T", ev)
				if failed, ok := ev.(transition.ChildFailed); ok {
					got += ": " + failed.Err.Error()
				}
				if !strings.HasPrefix(got, want) {
					t.Errorf("%s, want %s", got, want)
				}
			}
			w.Kill()
		})
	}
}

// The guard runs the post_stop of an abandoned leadership, so the worker does not, or no longer.
func TestPostStopOfAnAbandonedLeadership(t *testing.T) {
	file := filepath.Join(t.TempDir(), "began")
	w, _, events := start(t, Spec{Hooks: Hooks{PostStop: shell("echo >" + file + "; exec sleep 1000"), Timeout: 40 * time.Second}})
	ctx, abandon := context.WithCancel(t.Context())
	defer abandon()
	w.PostStop(ctx, 7)
	testhelper.Eventually(t, 20*time.Second, "the start of the hook", func() bool { return testhelper.Read(file) != "" })
	for range 2 {
		abandon()
		if ev, ok := next(t, events).(transition.HookDone); !ok || !errors.Is(ev.Err, context.Canceled) {
			t.Errorf("%#v", ev)
		}
		os.Remove(file)
		w.PostStop(ctx, 8)
	}
	next(t, events)
	if testhelper.Read(file) != "" {
		t.Error("the hook was started after the end")
	}
}

// The guard has the pending hooks, in case the daemon dies, until they are cleared.
func TestPendingHooks(t *testing.T) {
	w, g, _ := start(t, Spec{Hooks: Hooks{PostStop: []string{"true", "x"}, OnChange: []string{"cat"}, Timeout: time.Second}, Env: map[string]string{"X": "y"}})
	w.SetPendingHooks(7, []byte("{}\n"))
	if len(g.pending) != 2 {
		t.Fatalf("%+v", g.pending)
	}
	post, change := g.pending[0], g.pending[1]
	if !slices.Equal(post.Argv, []string{"true", "x"}) || !slices.Contains(post.Env, "ZKELECTD_TERM=7") || !slices.Contains(post.Env, "X=y") || post.Timeout != time.Second || post.Optional {
		t.Errorf("post_stop: %+v", post)
	}
	if string(change.Input) != "{}\n" || slices.Contains(change.Env, "ZKELECTD_TERM=7") || !change.Optional {
		t.Errorf("on_change: %+v", change)
	}
	w.ClearPendingHooks()
	w.ClearPendingHooks()
	if len(g.pending) != 0 || g.calls != 2 {
		t.Errorf("%d calls, the last with %+v", g.calls, g.pending)
	}
	w.opt.Spec.Hooks = Hooks{PostStop: []string{"/no/such/hook"}}
	if w.SetPendingHooks(8, nil); g.calls != 2 {
		t.Errorf("the guard is to run %+v", g.pending)
	}
}
