package faults

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"zkelectd/internal/test/faultproxy"
)

// A candidate switches the host of a lost leader off, and starts its work at once. The work of that host may still run, even without a
// lease, if all processes of zkelectd there are stopped: only fencing, which is required, ends it. The command kills all processes of the
// node. While it fails, nobody takes over.
func TestCampaignOfFencing(t *testing.T) {
	faults := []fault{
		{"loss of the host", loseHost}, {"SIGSTOP of daemon and guard", stop(daemonProcess, guardProcess)}, {"no node can be fenced", breakFencing},
		{"SIGSTOP of guard, keeper and daemon", stopHost},
		{"daemon cut off from all servers", setMode(true, faultproxy.Refuse)}, {"black hole between daemon and servers", setMode(true, faultproxy.BlackHole)},
	}
	f := runCampaign(t, 1, max(3, *count/2), faults, func(n *node) {
		n.fences = true
	})
	succeeded, failed := f.fencings()
	t.Logf("fencing: %d succeeded, %d failed", succeeded, failed)
}

// stopHost stops all processes of zkelectd on the leader's host, so that nothing there ends the work.
func stopHost(f *fleet) (func(), error) {
	var stopped []int
	for who, pids := range f.victim().pids() {
		if slices.Contains(zkelectdProcesses, who) {
			stopped = append(stopped, pids...)
		}
	}
	signal(syscall.SIGSTOP, stopped...)
	return func() { signal(syscall.SIGCONT, stopped...) }, nil
}

// fencing returns the settings of a node that fences, and writes what its command needs.
func (n *node) fencing() string {
	n.f.write(n.id+".processes", []byte(n.memory.Dir+"/cgroup.procs"))
	script := fmt.Sprintf(`#!/bin/sh
cd %s
if [ -e %s ]; then echo failed $ZKELECTD_FENCE_NODE >>%s; exit 1; fi
list=$(cat "$ZKELECTD_FENCE_NODE.processes") || exit 1
while pids=$(cat $list) && [ -n "$pids" ]; do kill -KILL $pids 2>/dev/null; done
echo fenced $ZKELECTD_FENCE_NODE >>%[3]s
`, n.f.dir, fencingBroken, fencingLog)
	command := n.f.file("fence")
	if err := os.WriteFile(command, []byte(script), 0o700); err != nil {
		n.f.t.Fatal(err)
	}
	return fmt.Sprintf("fencing: {levels: {command: [%s]}, required: true, skip_wait: true, timeout: 5s}\n", command)
}

// The files of the command that fences: while the first exists, it fails; the second has a line for each run.
const (
	fencingBroken = "fencing.broken"
	fencingLog    = "fencing.log"
)

// breakFencing makes fencing fail for a while.
func breakFencing(f *fleet) (func(), error) {
	f.write(fencingBroken, nil)
	return func() { os.Remove(f.file(fencingBroken)) }, nil
}

// fencings returns how many runs of the command succeeded, and how many failed.
func (f *fleet) fencings() (succeeded, failed int) {
	data, err := os.ReadFile(f.file(fencingLog))
	if err != nil && !os.IsNotExist(err) {
		f.t.Fatal(err)
	}
	return strings.Count(string(data), "fenced"), strings.Count(string(data), "failed")
}
