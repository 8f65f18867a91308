package operator

import (
	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/operator/losses"
)

// Losses returns what becomes of a group with this configuration after each loss. alone is set if it is known that no other member
// may lead.
func Losses(c config.Config, b cluster.Budget, alone bool) []losses.Loss {
	hooks := 0
	for _, argv := range [][]string{c.Hooks.PostStop, c.Hooks.OnChange} { // those that the guard runs
		if len(argv) > 0 {
			hooks++
		}
	}
	f := Fencing(c)
	_, misfit := b.NewReset(0)
	return losses.Table(losses.Config{
		Budget: b, Hooks: hooks, Alone: alone,
		Fencing:  losses.Fencing{Enabled: f.Enabled(), Required: c.Fencing.Required, SkipWait: c.Fencing.SkipWait, Limit: f.Limit()},
		Failsafe: losses.Failsafe{Enabled: c.Failsafe.Enabled, Max: c.Failsafe.Max},
		Device:   losses.Device{Used: c.Device.Used() && misfit == nil, Required: c.Device.Mode == config.DeviceRequired},
	})
}
