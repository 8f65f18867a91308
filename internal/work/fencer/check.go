package fencer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Check returns an error for each agent that is not installed, does not know its options, or lacks some. It fences
// nothing, and talks to no device. skipWait is set if a success ends the lease wait.
func (c Config) Check(ctx context.Context, skipWait bool, run Runner) (errs []error) {
	for i := range c.Levels {
		l := &c.Levels[i]
		if l.Agent == "" {
			continue
		}
		var found []error
		err := c.bounded(ctx, func(ctx context.Context) error {
			found = l.check(ctx, skipWait, run)
			return ctx.Err()
		})
		if err != nil {
			found = []error{fmt.Errorf("%s: %s: %w", l.key("agent"), l.Agent, err)}
		}
		errs = append(errs, found...)
	}
	return errs
}

func (l *Level) check(ctx context.Context, skipWait bool, run Runner) (errs []error) {
	m, err := l.metadata(ctx, run)
	if err != nil {
		return []error{fmt.Errorf("%s: %s: %w", l.key("agent"), l.Agent, err)}
	}
	if !m.has("off") {
		return []error{fmt.Errorf("%s: %s has no action off", l.key("agent"), l.Agent)}
	}
	if skipWait && !m.has("reboot") {
		errs = append(errs, fmt.Errorf("%s: %s has no action reboot, so it only cuts a host off, whose work goes on: "+
			"fencing.skip_wait must be false",
			l.key("agent"), l.Agent))
	}
	for _, node := range slices.Sorted(maps.Keys(l.Nodes)) {
		c, err := l.call(node)
		if err != nil {
			return append(errs, err)
		}
		for _, text := range m.validate(c.options) {
			err := fmt.Errorf("%s of %s: %s: %s", l.key("nodes"), l.Agent, node, text)
			if _, own := l.Nodes[node]; own {
				errs = append(errs, err)
			}
		}
	}
	return errs
}

// Monitor asks the agents whether they could fence a node, without fencing it. A command cannot be asked. The error is
// nil if none failed.
func (c Config) Monitor(ctx context.Context, node string, run Runner) error {
	var errs []error
	for i := range c.Levels {
		l := &c.Levels[i]
		if _, known := l.Nodes[node]; l.Agent == "" || !known {
			continue
		}
		if err := c.bounded(ctx, func(ctx context.Context) error { return l.monitor(ctx, node, run) }); err != nil {
			errs = append(errs, fmt.Errorf("%s could not fence %s: %w", l.Name(), node, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

func (l *Level) monitor(ctx context.Context, node string, run Runner) error {
	c, err := l.call(node)
	if err != nil {
		return err
	}
	m, err := l.metadata(ctx, run)
	if err != nil {
		return err
	}
	action := "monitor"
	if !m.has(action) {
		action = "status"
	}
	r, err := c.act(ctx, run, action)
	switch {
	case err != nil:
		return fmt.Errorf("action=%s: %w", action, err)
	case action == "status" && r.Code == statusOff:
		return nil
	}
	if err := r.check(); err != nil {
		return fmt.Errorf("action=%s: %w", action, err)
	}
	return nil
}

// Nodes returns the nodes that agents can fence, sorted.
func (c Config) Nodes() []string {
	all := make(map[string]bool)
	for _, l := range c.Levels {
		for node := range l.Nodes {
			all[node] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// CanFence returns an error if nothing is configured that could fence the node.
func (c Config) CanFence(node string) error {
	for _, l := range c.Levels {
		if _, known := l.Nodes[node]; known || l.Agent == "" {
			return nil
		}
	}
	return fmt.Errorf("no level of fencing can fence %s", node)
}
