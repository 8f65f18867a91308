package host

import (
	"context"
	"testing"
	"time"

	"zkelectd/internal/config"
	"zkelectd/internal/work/command"
)

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
