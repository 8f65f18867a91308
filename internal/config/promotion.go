package config

import "zkelectd/internal/work/probe"

// Warm says when a standby is ready to be promoted.
type Warm struct {
	probe.Target `yaml:",squash" doc:"A standby is ready to be promoted"`
	Notify       bool `yaml:"notify" doc:"A standby is ready to be promoted when it has sent READY=1 to $NOTIFY_SOCKET (sd_notify). A unit does that with Type=notify."`
}

// Order tells promotable work its role.
type Order struct {
	Exec []string `yaml:"exec" program:"yes" doc:"A command that {doc}. It gets the variables of the work, and ZKELECTD_ROLE=leader or standby. Set at most one of exec and http."`
	HTTP string   `yaml:"http" doc:"A URL that {doc}: it is sent a POST with the role and the fencing token as JSON, and has succeeded if it answers 2xx."`
}

func (o Order) empty() bool { return len(o.Exec) == 0 && o.HTTP == "" }

// Promotable reports whether the work runs on every host that may lead.
func (c Child) Promotable() bool { return !c.Promote.empty() }

func (c *Config) checkPromotion(report func(string, string, ...any)) {
	child := &c.Child
	for section, o := range map[string]Order{"child.promote": child.Promote, "child.demote": child.Demote} {
		atMostOne(report, section, map[string]bool{"exec": len(o.Exec) > 0, "http": o.HTTP != ""})
	}
	work := c.OfSlot(0, max(c.Slots.Count, 1)).Child // a URL with a variable is invalid before it is replaced
	for section, link := range map[string]string{"child.promote": work.Promote.HTTP, "child.demote": work.Demote.HTTP} {
		checkTarget(report, section, link, "")
	}
	warm := child.Warm
	atMostOne(report, "child.warm", map[string]bool{"exec": len(warm.Exec) > 0, "http": warm.HTTP != "", "tcp": warm.TCP != "", "notify": warm.Notify})
	checkTarget(report, "child.warm", warm.HTTP, warm.TCP)
	switch {
	case child.Promotable() == child.Demote.empty():
		report("child.promote", "child.promote and child.demote belong together: set both or neither")
		return
	case !child.Promotable() && (!warm.Empty() || warm.Notify):
		report("child.warm", "has no effect: set child.promote and child.demote as well")
	case !child.Promotable():
		return
	case len(child.Command) == 0 && child.Unit == "":
		report("child.promote", "needs child.command or child.unit")
	case child.Unit != "" && warm.Notify:
		report("child.warm.notify", "cannot be set together with child.unit: set Type=notify in the unit instead")
	case c.Slots.Enabled() && c.Slots.PerNode != 1:
		report("child.promote", "needs slots.per_node: 1: a host has one standby, which can lead one slot")
	case c.Slots.Enabled() && (hasSlotVariable(child.Command) || hasSlotVariable(child.Unit) || hasSlotVariable(child.Dir) || hasSlotVariable(child.Env)):
		report("child.promote", "the work contains %s or %s, but a standby belongs to no slot: child.promote says which one it leads", slotVariable, slotsVariable)
	}
	if child.Ready.Notify {
		report("child.ready.notify", "cannot be set together with child.promote: use exec, http or tcp")
	}
	if c.Device.Used() {
		report("watchdog_device.mode", "cannot be used together with child.promote")
	}
}
