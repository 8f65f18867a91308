package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/cluster/zkstore"
)

// neighbors measures the leases of the groups beside one that misbehaves.
func neighbors(ctx context.Context, t *table, binary string) error {
	h, err := startHosts(ctx, binary, manyGroups-1)
	if err != nil {
		return err
	}
	defer h.close()
	const api = "127.0.0.1:17981"
	if err := h.start(ctx, "a", "http: {listen: \""+api+"\"}\n"); err != nil {
		return err
	}
	if err := h.led(ctx, "a"); err != nil {
		return err
	}
	quiet, err := h.leastLease(ctx, api)
	if err != nil {
		return err
	}
	t.add(fmt.Sprintf("%d groups, quiet: least of a lease that was left", len(h.names)), ms(quiet), "lease "+cluster.SafeLease(groupTimeout).String(), "", true)
	for _, bad := range []struct{ name, what, file string }{
		{"flood", "a child floods its log", `child: {command: ["yes", "a line of the log of a child that never stops to write"]}`},
		{"spin", "a policy program spins", `policy: {type: exec, exec: [sh, -c, "while :; do :; done"]}`},
		{"hang", "hooks hang", `hooks: {pre_start: [sleep, "100000"], on_change: [sleep, "100000"], timeout: 1m}`},
	} {
		least, err := h.beside(ctx, api, bad.name, bad.file)
		if err != nil {
			return fmt.Errorf("%s: %w", bad.what, err)
		}
		ratio := float64(least) / float64(quiet)
		t.add(fmt.Sprintf("%d groups beside one whose %s: least lease left", len(h.names), strings.TrimPrefix(bad.what, "a ")), ms(least),
			fmt.Sprintf("%.2f of the quiet phase's", ratio), ">= 0.9", ratio >= 0.9)
	}
	return nil
}

// beside adds a group to host a, measures the leases of the others, and removes the group.
func (h *hosts) beside(ctx context.Context, api, name, file string) (time.Duration, error) {
	bad := h.of(name)
	if err := zkstore.Init(ctx, h.session, bad.paths, "the benchmark"); err != nil {
		return 0, err
	}
	if err := h.write("a", name, file); err != nil {
		return 0, err
	}
	reload := func() { h.nodes["a"].cmd.Process.Signal(syscall.SIGHUP) }
	reload()
	if err := bad.members(ctx, 1); err != nil {
		return 0, err
	}
	least, err := h.leastLease(ctx, api)
	if err != nil {
		return 0, err
	}
	if err := os.Remove(filepath.Join(h.groupsDir("a"), name+".yaml")); err != nil {
		return 0, err
	}
	reload()
	return least, bad.until(ctx, func(c cluster.Stored[cluster.Current], _ time.Time) bool { return !c.Exists })
}
