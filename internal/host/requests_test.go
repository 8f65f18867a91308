package host

import (
	"context"
	"errors"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/request"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/test/zkserver"
)

var pausing = request.Request{Kind: request.KindPause, Options: request.Options{By: "ann"}}

func TestSubmit(t *testing.T) {
	root := fresh()
	a, _ := run(t, root, "a")
	until(t, a, "a leads", status.Daemon.Leads)
	var refused *request.RefusedError
	if _, err := a.Submit(t.Context(), request.Request{Kind: request.KindResume}); !errors.As(err, &refused) || err.Error() != "the group is not paused" {
		t.Errorf("%v", err)
	}
	plan, err := a.Submit(t.Context(), pausing)
	if err != nil || plan.ID != 1 || len(plan.Messages) != 1 {
		t.Errorf("%+v %v", plan, err)
	}
	until(t, a, "the pause is shown", func(v status.Daemon) bool { return v.Paused })
	if _, err := a.Submit(t.Context(), request.Request{Kind: request.KindMove}); err == nil || errors.As(err, &refused) {
		t.Errorf("a usage error: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Submit(gone, request.Request{Kind: request.KindResume}); err == nil {
		t.Error("a request is submitted although its client has gone")
	}
}

// A server that hangs delays the client of a request, but not the loop, and the current lease stays valid.
func TestUnansweredRequestDelaysNothingElse(t *testing.T) {
	silent, err := zkserver.Start(t.Context(), zkserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Stop()
	a, _ := run(t, fresh(), "a", "ZKELECTD_ZOOKEEPER_SERVERS="+silent.Addr())
	until(t, a, "a leads", status.Daemon.Leads)
	silent.Pause()
	for quiet := false; !quiet; { // a process does not stop at once
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err := silent.FourLetterWord(ctx, "srvr")
		quiet = err != nil
		cancel()
	}
	began := time.Now()
	done := make(chan error, 1)
	go func() {
		_, err := a.Submit(t.Context(), pausing)
		done <- err
	}()
	hurried, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := a.Submit(hurried, pausing); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a request behind another one: %v", err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for waiting := true; waiting; {
		select {
		case err := <-done:
			waiting = false
			if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, cluster.ErrUnknown) {
				t.Errorf("%v", err)
			}
		case <-tick.C:
			if v := a.View(); v.CheckLoop() != nil || !v.Leads() {
				t.Fatalf("while the request waits: %s, %s", v.CheckLoop(), v.CheckLeader())
			}
		}
	}
	if took := time.Since(began); took > 3*operator.ReadTimeout {
		t.Errorf("it took %s", took)
	}
	silent.Resume()
	until(t, a, "a leads on", func(v status.Daemon) bool { return v.Leads() && v.CheckReady() == nil })
	if n := a.Totals(); n.SessionsLost != 0 {
		t.Errorf("%d sessions were lost", n.SessionsLost)
	}
	if plan, err := a.Submit(t.Context(), pausing); err != nil || plan.ID != 1 {
		t.Errorf("afterwards: %+v %v", plan, err)
	}
}
