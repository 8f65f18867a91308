package host

import (
	"errors"
	"strings"
	"testing"

	"zkelectd/internal/operator"
	"zkelectd/internal/operator/status"
)

// The elector answers from its own snapshot, the others read the group on request.
func TestEveryHostShowsTheGroup(t *testing.T) {
	root := fresh()
	a, _ := run(t, root, "a")
	if _, err := a.Explain(t.Context()); a.View().State() == "connecting" && err == nil {
		t.Error("before there is a session the group is explained")
	}
	until(t, a, "a leads", status.Daemon.Leads)
	b, bDone := run(t, root, "b", "ZKELECTD_NODE_PRIORITY=1")
	until(t, b, "b is a replica", func(v status.Daemon) bool { return v.CheckReplica() == nil })
	until(t, a, "a has seen b", func(v status.Daemon) bool { return v.Sites["default"].Eligible == 2 })
	for name, h := range map[string]only{"a": a, "b": b} {
		g, err := h.State(t.Context())
		if err != nil || g.Leader != "a" || g.State != "READY" || len(g.Members) != 2 || g.Elector != "a" {
			t.Errorf("the group of %s: %+v %v", name, g, err)
		}
		e, err := h.Explain(t.Context())
		if err != nil || e.Leader != "a" || len(e.Members) != 2 || !strings.Contains(strings.Join(e.Changes, "\n"), "if a is lost, b (default) leads") {
			t.Errorf("%s explains %+v %v", name, e, err)
		}
	}
	// The history is written a moment later, and is then cached for a second.
	wait(t, "the history has the term", func() bool {
		terms, err := b.History(t.Context())
		return err == nil && len(terms) == 1 && terms[0].Node == "a"
	})
	b.Stop("stopped")
	if err := <-bDone; err != nil {
		t.Error(err)
	}
	if _, err := b.State(t.Context()); !errors.Is(err, operator.ErrNoSession) {
		t.Errorf("after its end: %v", err)
	}
}
