package operator

import (
	"zkelectd/internal/config"
	"zkelectd/internal/fencer"
)

// Fencing returns how a configuration fences nodes.
func Fencing(c config.Config) fencer.Config {
	levels, settings := c.Fencing.Order()
	out := fencer.Config{Timeout: c.Fencing.Timeout}
	for i, l := range levels {
		out.Levels = append(out.Levels, fencer.Level{
			Setting: settings[i], Command: l.Command, Agent: l.Agent, Options: l.Options, Secrets: l.Secrets, Nodes: l.Nodes,
		})
	}
	return out
}
