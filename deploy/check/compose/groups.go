package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// leaderships is how many there are in deploy/groups: of 11 groups with one leader, and of four slots.
const leaderships = 15

// runGroups runs the same members with many groups: all are led, by all nodes; a drained node leads nothing until the drain is over.
func (t *tour) runGroups(ctx context.Context) error {
	begun := time.Now()
	t.files = "docker-compose.yml:docker-compose.groups.yml"
	if err := t.up(ctx); err != nil {
		return err
	}
	err := t.waitForLeaders(ctx, "all nodes to lead", func(led map[string]int) bool { return len(led) == len(nodes) })
	if err != nil {
		return err
	}
	fmt.Printf("%d leaderships of groups on all nodes, after      %8s\n", leaderships, since(begun))
	if err := t.checkHardening(ctx); err != nil {
		return err
	}
	if err := t.drainNode(ctx); err != nil {
		return err
	}
	if err := t.waitForHealth(ctx); err != nil {
		return err
	}
	lines, err := t.workLines(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("%d lines of work, never two of a group or slot at the same time\n", len(lines))
	return nil
}

// drainNode drains n1, and lets it lead again.
func (t *tour) drainNode(ctx context.Context) error {
	begun := time.Now()
	if _, err := t.docker(ctx, "exec", t.ids["n2"], "/zkelectd", "drain", "n1", "--wait", "--yes"); err != nil {
		return err
	}
	fmt.Printf("n1 drained, after                                %8s\n", since(begun))
	// A slot of another node may still move.
	err := t.waitForLeaders(ctx, "the others to lead all", func(led map[string]int) bool { return led["n1"] == 0 })
	if err != nil {
		return err
	}
	begun = time.Now()
	if _, err := t.docker(ctx, "exec", t.ids["n2"], "/zkelectd", "uncordon", "n1", "--yes"); err != nil {
		return err
	}
	if err := t.waitForLeaders(ctx, "n1 to lead again", func(led map[string]int) bool { return led["n1"] > 0 }); err != nil {
		return err
	}
	fmt.Printf("n1 leads again, after                            %8s\n", since(begun))
	return nil
}

// waitForLeaders waits until all groups and slots have a leader that is READY, and ok returns true for how many each node leads.
func (s *stack) waitForLeaders(ctx context.Context, what string, ok func(led map[string]int) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, errors.New("not done after two minutes"))
	defer cancel()
	var led map[string]int
	var failed error
	err := await(ctx, what, func() (bool, error) {
		now, err := s.leaders(ctx) // fails before ZooKeeper and the daemons work
		if ctx.Err() == nil {
			led, failed = now, err
		}
		return err == nil && led[""] == 0 && ok(led), nil
	})
	if err != nil {
		return errors.Join(fmt.Errorf("%w: the nodes lead %v", err, led), failed)
	}
	return nil
}

// leaders returns how many groups and slots each node leads; those without a leader that is READY count for the node "".
func (s *stack) leaders(ctx context.Context) (map[string]int, error) {
	out, err := s.docker(ctx, "exec", s.ids["n2"], "/zkelectd", "status", "-o", "json")
	if err != nil {
		return nil, err
	}
	var all struct {
		Groups []struct{ State, Leader string }
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		return nil, err
	}
	led := make(map[string]int)
	for _, g := range all.Groups {
		if g.State == "READY" {
			led[g.Leader]++
		} else {
			led[""]++
		}
	}
	if n := len(all.Groups); n != leaderships {
		return led, fmt.Errorf("there are %d groups and slots, not %d", n, leaderships)
	}
	return led, nil
}
