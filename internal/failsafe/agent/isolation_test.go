package agent

import (
	"context"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/transition/failsafe"
)

// The groups of a host share their requests, but nothing else: the reply to one group must not wait for another one, whose loop is stuck.
func TestAGroupThatIsStuckDelaysNoOther(t *testing.T) {
	a, b := start(t, "n1"), start(t, "n2")
	other := cluster.Paths{Root: "/zkelectd/other"}
	for _, d := range []*daemon{a, b} {
		d.SetGroup(Group{Paths: other, Enabled: true, Self: d.incarnation(), Secrets: secrets})
		d.Promises().Register(failsafe.Group(other), d.incarnation())
	}
	join(a, b)
	b.SetProbe(func(context.Context) error { return cluster.ErrUnknown })
	ask := func(p cluster.Paths, done func(failsafe.Reply)) {
		r := failsafe.Request{Group: failsafe.Group(p), Term: 8, Holder: a.incarnation(), Member: b.incarnation(), Round: 1, Start: 1}
		a.Send(p, []failsafe.Message{{To: cluster.FailsafeMember{ID: "n2"}, Address: b.http.Listener.Addr().String(), Request: r}}, time.Second, done)
	}
	stuck, got := make(chan struct{}), make(chan struct{}, 100)
	t.Cleanup(func() { close(stuck) })
	limit := time.After(10 * time.Second)
	for range 3 * maxAsking {
		ask(other, func(failsafe.Reply) { <-stuck })
		ask(cluster.Paths{Root: root}, func(failsafe.Reply) { got <- struct{}{} })
		select {
		case <-got:
		case <-limit:
			t.Fatal("no reply: it waits for the other group")
		}
	}
}
