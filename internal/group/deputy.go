package group

import (
	"context"
	"slices"
	"time"

	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/transition"
	"zkelectd/internal/watchdog"
)

// deputy carries out what the member's [watchdog.Deputy] wants. It belongs to the member's loop.
type deputy struct {
	m       *Member
	core    *watchdog.Deputy
	znode   string // the lease znode that is followed; empty for none
	release func()
	wake    time.Duration // when observe is to be called if nothing happens; 0 for never
	// reconnects is how often the session had reconnected when that was last noticed.
	reconnects int
}

func newDeputy(m *Member) *deputy {
	opt := watchdog.SilenceOptions{Wait: max(m.budget.LeaseWait, m.opt.LostAfter), Renew: m.budget.Renew,
		Session: m.budget.Session}
	return &deputy{m: m, core: watchdog.NewDeputy(m.self.Name, opt, m.session.Reconnects())}
}

func (d *deputy) input(now time.Duration) watchdog.DeputyInput {
	m := d.m
	return watchdog.DeputyInput{
		Snapshot: &m.snap, Seen: m.opt.LeaseZnodes.Seen(d.znode), Reconnects: m.session.Reconnects(), Now: now,
		MaySucceed:      m.machine.MaySucceed,
		RollCallTimeout: m.opt.RollCall.timeout(),
	}
}

// observe looks at the newest snapshot and at what was read last of the holder's lease znode. It tells the elector who
// is silent.
func (d *deputy) observe(now time.Duration) {
	m := d.m
	if m.opt.LeaseZnodes == nil || m.snap.At == 0 {
		return
	}
	if n := m.session.Reconnects(); n != d.reconnects {
		d.reconnects = n
		m.elector.Interrupted()
	}
	in := d.input(now)
	out := d.core.Observe(in)
	d.wake = out.Wake
	d.follow(out.Follow)
	if out.Ask {
		d.ask()
	}
	if out.CallRoll {
		m.elector.CallRoll(&m.snap, m.opt.RollCall.timeout(), m.snap.LeaseAt(in.Seen), now)
	}
	m.instance.setActing(m, out.Act)
	m.elector.SetSilent(d.core.Silent(&m.snap, now))
}

// follow follows a lease znode instead of the one before.
func (d *deputy) follow(znode string) {
	if znode == d.znode {
		return
	}
	d.close()
	if d.znode = znode; znode != "" {
		m := d.m
		d.release = m.opt.LeaseZnodes.Follow(znode, func() { m.inbox.post(func() { m.step(transition.Tick{}) }) })
	}
}

// close ends following. The reader of the znode ends in the background.
func (d *deputy) close() {
	if d.release != nil {
		d.m.background.spawn(d.release)
		d.release = nil
	}
	d.znode = ""
}

// ask finds out whether ZooKeeper answers in time, and whether the lease znode is still as it was.
func (d *deputy) ask() {
	m, znode := d.m, d.znode
	var err error
	began := boottime.Now()
	m.background.run(m.budget.Session, func(ctx context.Context) {
		if err = m.session.Sync(ctx); err == nil {
			err = m.opt.LeaseZnodes.Refresh(ctx, znode)
		}
	}, func() {
		now, f := boottime.Now(), &m.snap.Fence.Record
		if d.core.Answered(d.input(now), began, err) {
			m.group.log.Warn("the leader has fallen silent, and its lease is over", "leader", f.Node, "term", f.Term)
		} else {
			m.group.log.Info("the leader has not renewed its lease, but that proves nothing yet", "leader", f.Node,
				"term", f.Term, "zookeeper_took", now-began, "err", err)
		}
	})
}

// setActing makes all members read what the elector reads while one of them acts as a deputy: an election in one slot
// depends on all others.
func (i *Instance) setActing(m *Member, acts bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if m.acting == acts {
		return
	}
	m.acting = acts
	on := slices.ContainsFunc(i.members, func(o *Member) bool { return o.acting })
	for _, o := range i.members {
		o.reader.Act(on)
	}
}
