package storetest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// ContractOfLoss tests the behavior that zkelectd relies on when servers restart without their data. start returns an
// environment, and lose, which does that to it.
func ContractOfLoss(t *testing.T, start func(t testing.TB) (e Env, lose func(t testing.TB))) {
	e, lose := start(t)
	old := e.Connect(t)
	do(t, old, op(cluster.OpCreate, e.Root+"/x", 0))
	for version := range int32(5) {
		do(t, old, op(cluster.OpSet, e.Root+"/x", version))
	}
	sequential := op(cluster.OpCreate, e.Root+"/n_", 0)
	sequential.Sequential = true
	first := do(t, old, sequential)[0].Path
	lose(t)

	fresh := e.Connect(t)
	for _, c := range []Conn{fresh, e.Connect(t), e.Connect(t)} {
		if c.SessionID() == old.SessionID() {
			t.Error("a session id was reused")
		}
	}
	if exists(t, fresh, e.Root) {
		t.Fatal("the servers have not lost their data")
	}
	// Versions and sequence numbers start again.
	do(t, fresh, op(cluster.OpCreate, e.Root, 0))
	do(t, fresh, op(cluster.OpCreate, e.Root+"/x", 0))
	do(t, fresh, op(cluster.OpCheck, e.Root+"/x", 0))
	if again := do(t, fresh, sequential)[0].Path; strings.TrimSuffix(again, "1") != strings.TrimSuffix(first, "1") {
		t.Errorf("the sequence continues with %s after %s", again, first)
	}
	// A client that has seen newer data gets no answer, and is not told that its session is over.
	for range 5 {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		_, err := old.Do(ctx, op(cluster.OpCheck, e.Root+"/x", cluster.AnyVersion))
		cancel()
		var refused *cluster.TxError
		if err == nil || errors.As(err, &refused) || errors.Is(err, cluster.ErrSessionEnded) {
			t.Fatalf("an earlier session was answered: %v", err)
		}
	}
}
