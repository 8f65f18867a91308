package host

import (
	"os"

	"zkelectd/internal/config"
	"zkelectd/internal/group"
	"zkelectd/internal/operator"
	"zkelectd/internal/probe"
	"zkelectd/internal/worker"
)

// groupOptions returns the options of the group. Settings holds those that a reload may change.
func (h *Host) groupOptions() group.Options {
	c := h.config()
	restart := c.Child.Restart
	return group.Options{
		Paths: h.paths, Settings: h.settings(), Identity: group.Identify(h.opt.Guard.GuardPid()),
		Elector: operator.ElectorOptions(c), TakeoverTimeout: c.Election.TakeoverTimeout, StrikeResetAfter: c.Election.StrikeResetAfter,
		TrustSessionEnd: c.Election.TrustSessionEnd,
		Work:            workSpec(c), Restart: group.Restart{Max: restart.Max, Window: restart.Window, Backoff: restart.Backoff},
		Guard: h.opt.Guard, Health: h.health, Counters: h.counters, Log: h.log,
		Rank: operator.AskProgram, CloseOld: h.closeOld,
		OnChange: func(input []byte) { h.hooks.Push(input) }, OnView: h.sendStatus, OnElector: h.cache.SetSnapshot,
	}
}

// settings returns the group's settings from the configuration in force.
func (h *Host) settings() group.Settings {
	s := groupSettings(h.config(), h.opt.Secure)
	last := h.lastReload.Load()
	s.Node.Version, s.Node.Reloads, s.Node.Refused, s.Node.Reloaded = h.opt.Version, last.count, last.refused, last.text
	return s
}

// groupSettings returns the group's settings from a configuration.
func groupSettings(c config.Config, secure bool) group.Settings {
	s := group.Settings{Rules: c.Rules(), PolicyRevision: int64(c.Policy.Revision), Program: c.Policy.Exec.Command}
	n := &s.Node
	n.ID, n.Site, n.Priority, n.Labels = c.Node.ID, c.Node.Site, c.Node.Priority, c.Node.Labels
	n.API, n.ACL = c.HTTP.Public(secure), c.ZooKeeper.ACL
	if c.Node.Observer {
		n.Ineligible = "an observer: node.observer is set"
	}
	return s
}

// workSpec returns the leader-only work that a configuration defines.
func workSpec(c config.Config) worker.Spec {
	ready, live, hooks := c.Child.Ready, c.Child.Live, c.Hooks
	return worker.Spec{
		Command: c.Child.Command, Unit: c.Child.Unit, UnitSocket: c.UnitSocket(os.Getenv), Dir: c.Child.Dir, Env: c.Child.Env,
		StopSignal: c.Child.Signal(),
		Ready: probe.Readiness{
			Exec: ready.Exec, HTTP: ready.HTTP, TCP: ready.TCP, Notify: ready.Notify, Delay: ready.Delay, Interval: ready.Interval, Timeout: ready.Timeout,
		},
		Live: probe.Watch{
			Target: target(live.Check), Section: "child.live", Interval: live.Interval, Timeout: live.Timeout, Rise: 1, Fall: live.Fall,
		},
		Hooks: worker.Hooks{PreStart: hooks.PreStart, PostStop: hooks.PostStop, OnChange: hooks.OnChange, Timeout: hooks.Timeout},
	}
}
