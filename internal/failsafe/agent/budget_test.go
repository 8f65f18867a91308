package agent

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/transition/failsafe"
)

// A leader goes by the session timeout that a member publishes, the granted one. The member's own lease may be based on
// a shorter one, that a server has granted before, but what it promises lasts as long as the leader counts on. It
// promises nothing for longer than it has stored.
func TestAPromiseLastsAsLongAsTheLeaderCountsOn(t *testing.T) {
	a, b := start(t, "n1"), start(t, "n2")
	join(a, b)
	const granted = 6 * time.Second
	b.SetProbe(func(context.Context) error { return cluster.ErrUnknown })
	asks := func(m *failsafe.Message) { m.Wait = cluster.Duration(cluster.LeaseWait(granted)) }
	blocker := b.dir.Path(stateFile + ".new") // nothing can be stored while this is a directory
	if err := os.Mkdir(blocker, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := b.SetBudget(budget(t).Granted(granted)); err == nil {
		t.Fatal("it may promise for longer than the next process would be bound")
	}
	round(t, a, asks, refusedFor(failsafe.ReasonWait), b)
	if err := errors.Join(os.Remove(blocker), b.SetBudget(budget(t).Granted(granted))); err != nil {
		t.Fatal(err)
	}
	round(t, a, asks, promised, b)
	if state, err := readState(b.dir); err != nil || time.Duration(state.Wait) < cluster.LeaseWait(granted) {
		t.Errorf("after a restart it is bound for %s only (%v)", state.Wait, err)
	}
}
