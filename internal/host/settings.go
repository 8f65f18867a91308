package host

import (
	"context"
	"errors"
	"os"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/group"
	"zkelectd/internal/operator"
	"zkelectd/internal/work/hook"
	"zkelectd/internal/work/probe"
	"zkelectd/internal/work/workenv"
	"zkelectd/internal/work/worker"
)

// options returns the options of the group. Settings holds those that a reload may change.
func (g *Group) options() group.Options {
	h := g.host
	return group.Options{
		Name: g.name, Resource: g.resource.name, Paths: g.paths, Settings: g.settings(),
		Identity:    group.Identify(h.opt.Guard.GuardPid()),
		Containment: h.opt.Guard.Containment, GuardErr: h.opt.Guard.Err, Device: h.device.View,
		Health: h.health, Standby: g.resource.standby.state, Counters: g.counters, Log: g.log, Feed: g.feed,
		Rank: operator.AskProgram, Loads: h.knownLoads,
		OnChange: func(input []byte) { g.hooks.Push(hook.Input{Data: input}) }, OnView: g.propose,
		OnElector: g.cache.SetSnapshot,
		Placement: h.placement.of(g.name, g.config().Rules(), func() { g.core.Load().Reconsider() }),
	}
}

// instanceOptions returns the options of the group's next instance.
func (g *Group) instanceOptions() group.InstanceOptions {
	c := g.workConfig()
	g.started.Store(&c)
	electing := operator.ElectorOptions(c)
	electing.Spread, electing.Settle = !g.host.single(), c.Election.Settle
	work := workSpec(c)
	work.Ready.Limit, work.Live.Limit = g.host.probes, g.host.probes
	work.Reset = g.host.device.spec
	return group.InstanceOptions{
		Elector: electing, TakeoverTimeout: c.TakeoverTimeout(), StrikeResetAfter: c.Election.StrikeResetAfter(),
		Work: work, Standby: g.resource.standby.work(), MaxRestarts: c.Child.MaxRestarts, LostAfter: c.Election.LostAfter,
		Fencing: g.host.fencing(c), RollCall: g.host.rollCall(c.Score),
	}
}

// rollCall returns how an instance takes part in roll calls; nil if it does not.
func (h *Host) rollCall(c config.Score) *group.RollCall {
	if !c.AtElection {
		return nil
	}
	return &group.RollCall{Timeout: c.Timeout, Measure: func(ctx context.Context) (float64, error) {
		if len(c.Exec) == 0 {
			return 0, errors.New("score.exec is not set")
		}
		if err := h.probes.Enter(ctx); err != nil {
			return 0, err
		}
		defer h.probes.Leave()
		return probe.Score(ctx, c.Exec, workenv.Clean(os.Environ()))
	}}
}

// settings returns the settings of the groups from the configuration in force.
func (r *resource) settings() group.Settings {
	s := groupSettings(r.config(), r.host.opt.Secure)
	last := r.lastReload.Load()
	s.Node.Problems = r.allProblems()
	s.Node.Version, s.Node.Reloads, s.Node.Refused, s.Node.Reloaded = r.host.opt.Version, last.count,
		last.refused, last.text
	s.Node.Pending = *r.host.pending.Load()
	return s
}

// groupSettings returns the group's settings from a configuration.
func groupSettings(c config.Config, secure bool) group.Settings {
	s := group.Settings{Rules: c.Rules(), PolicyInGroup: c.Policy.LeftToGroup(), Program: c.Policy.Exec,
		Slots: slotSize(c)}
	n := &s.Node
	n.ID, n.Site, n.Priority, n.Labels = c.Node.ID, c.Node.Site, c.Node.Priority, c.Node.Labels
	n.Weight, n.MaxLeaders, n.ForgetAfter = c.Node.Weight, c.Node.MaxLeaders, cluster.Duration(c.Node.ForgetAfter)
	n.API, n.ACL = c.HTTP.Public(secure), c.ZooKeeper.ACL
	if c.Node.Observer {
		n.Ineligible = "an observer: node.observer is set"
	}
	return s
}

// How often it is checked whether a standby is warm, and how long one check may take.
const (
	warmInterval = time.Second
	warmTimeout  = 5 * time.Second
)

// workSpec returns the leader-only work that a configuration defines.
func workSpec(c config.Config) worker.Spec {
	live, hooks := c.Child.Live, c.Hooks
	return worker.Spec{
		Command: c.Child.Command, Unit: c.Child.Unit, UnitSocket: c.UnitSocket(os.Getenv), Dir: c.Child.Dir, Env: c.Child.Env,
		StopSignal: c.Child.Signal(),
		Ready:      c.Child.Ready,
		Live: probe.Watch{
			Target: live.Target, Section: "child.live", Interval: live.Interval, Timeout: live.Timeout(), Rise: 1, Fall: fall,
		},
		Promote: worker.Order{Setting: "child.promote", Exec: c.Child.Promote.Exec, HTTP: c.Child.Promote.HTTP},
		Demote:  worker.Order{Setting: "child.demote", Exec: c.Child.Demote.Exec, HTTP: c.Child.Demote.HTTP},
		Warm: probe.Watch{Target: c.Child.Warm.Target, Section: "child.warm", Interval: warmInterval,
			Timeout: warmTimeout},
		WarmNotify: c.Child.Warm.Notify,
		Hooks: worker.Hooks{PreStart: hooks.PreStart, PostStop: hooks.PostStop, OnChange: hooks.OnChange,
			Timeout: hooks.Timeout},
	}
}
