package operator

import (
	"fmt"

	"zkelectd/internal/config"
	"zkelectd/internal/work/fencer"
)

// Fencing returns how a configuration fences nodes.
func Fencing(c config.Config) fencer.Config {
	out := fencer.Config{Timeout: c.Fencing.Timeout}
	for i, l := range c.Fencing.Levels {
		out.Levels = append(out.Levels, fencer.Level{
			Setting: fmt.Sprintf("fencing.levels[%d]", i), Command: l.Command, Agent: l.Agent, Options: l.Options, Secrets: l.Secrets, Nodes: l.Nodes,
		})
	}
	return out
}
