package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
)

// alsoLed returns the other groups and slots that a daemon leads, and why there must be no drill in them: all of them
// lose their leader with the daemon. rec is the record of the daemon in the group of the drill.
func (d *gameday) alsoLed(ctx context.Context, rec cluster.Node) (led, reasons []string, err error) {
	own := d.group
	own.paths.Slot, own.name = "", cluster.GroupOf(own.name)
	all := []group{own}
	for _, one := range own.host.Groups {
		if root := one.Config.ZooKeeper.Root; root != own.paths.Root {
			all = append(all, groupAt(own.session, one.Config, one.Name, root))
		}
	}
	names, refused, errs := make([][]string, len(all)), make([][]string, len(all)), make([]error, len(all))
	inParallel(len(all), readsAtOnce, func(i int) {
		if names[i], refused[i], errs[i] = all[i].ledBy(ctx, rec, d.group.name); errs[i] != nil {
			errs[i] = fmt.Errorf("group %s: %w", all[i].name, errs[i])
		}
	})
	return slices.Concat(names...), slices.Concat(refused...), errors.Join(errs...)
}

// ledBy returns whether a daemon leads the group, or which of its slots, except for one, and why they might not recover
// from its loss.
func (g group) ledBy(ctx context.Context, daemon cluster.Node, except string) (led, reasons []string, err error) {
	q, err := g.submitter().Question(ctx)
	if errors.Is(err, store.ErrNoGroup) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	leaders := q.Leaders()
	without := slices.Clone(leaders)
	var lost []int
	for i, each := range leaders {
		s := each.Snapshot
		m, found := s.Member(s.Current.Record.Incarnation)
		if !found || !m.Node.Readable() || !sameGuard(m.Node.Record, daemon) {
			continue
		}
		lost = append(lost, i)
		for j := range without {
			without[j].Change.Without = []string{m.ID}
		}
	}
	var then []whatif.Outcome
	if q.Slots != nil {
		then = whatif.RunSlots(without) // a member that could take over one slot may not have room for all
	}
	for _, i := range lost {
		s := leaders[i].Snapshot
		name := cluster.SlotName(g.name, s.Slot)
		var why []string
		if name != except {
			led = append(led, name)
			view := status.Of(g.name, g.paths.Root, s)
			why = refusals(operator.WithForecast(view, leaders[i]), s.Control.Record.Pause)
		}
		if len(why) == 0 && then != nil && !then[i].HasLeader() {
			why = []string{"nobody could take over from " + s.Current.Record.Node + ": " + then[i].WhyNoLeader()}
		}
		for _, reason := range why {
			reasons = append(reasons, name+": "+reason)
		}
	}
	return led, reasons, nil
}

// sameGuard reports whether two members are of one daemon.
func sameGuard(a, b cluster.Node) bool {
	return a.Host == b.Host && a.Boot == b.Boot && a.PID == b.PID && a.Started == b.Started
}
