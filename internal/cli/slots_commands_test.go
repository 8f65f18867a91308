package cli

import (
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// prints runs a command that must print texts that match the patterns; if it fails, it must print them, too.
func (f slotFleet) prints(succeeds bool, args []string, patterns ...string) {
	f.t.Helper()
	out, err := f.runAs("n1", args...)
	for _, p := range patterns {
		if (err == nil) != succeeds || !regexp.MustCompile(p).MatchString(out) {
			f.t.Errorf("%v: %v, want %q:\n%s", args, err, p, out)
			return
		}
	}
}

// Commands about one leader need a slot, those about a group refuse one, and the number of slots changes only while no daemon is in the group.
func TestCommandsForSlots(t *testing.T) {
	t.Parallel()
	f := newSlotFleet(t, 3)
	name := f.groupName()
	f.run("n1", 3, 2)
	f.run("n2", 3, 2)
	f.settled("the slots are led", 3, nil)
	f.prints(true, []string{"status"}, `3 of 3 groups have a READY leader`, `(?m)^`+name+`/2 +n[12] +dc1`, `(?m)^n1 +dc1 +[12] +[012]`)
	f.prints(true, []string{"status", "-g", name + "/2"}, `Slot +2 of 3, counted from 0`, `Leader +n[12]`)
	f.prints(true, []string{"leader", "-g", name + "/0"}, `^n[12]\n$`)
	f.prints(true, []string{"slots"}, `Slots +3 slots, at most 2 per node; epoch`)
	f.prints(true, []string{"explain", "-g", name + "/1"}, `Leader +n[12]`)
	f.prints(true, []string{"whatif"}, `(?m)^`+name+`/0 +n[12] +n[12]`)
	f.prints(false, []string{"whatif", "--all"}, `there would be no leader after a loss, in: `+name+`/[012] \(n1\)`)
	for _, args := range [][]string{{"explain"}, {"history"}, {"reelect"}, {"move", "--to", "n2"}, {"leader"}} {
		f.prints(false, args, `the group `+name+` has a leader for each slot: name a slot, as in -g `+name+`/0`)
	}
	for _, args := range [][]string{{"pause"}, {"cordon", "n1"}, {"policy"}, {"slots"}, {"repair"}} {
		f.prints(false, append(args, "-g", name+"/1"), `this concerns all slots of the group `+name+`, not only slot 1: use -g `+name)
	}
	f.prints(false, []string{"leader", "-g", name + "/3"}, `has no slot 3: it has 3, 0 to 2`)
	f.prints(true, []string{"pause", "--reason", "x"}, `paused: policy does not replace`)
	f.prints(true, []string{"resume"}, `ended: the pause`)
	f.prints(true, []string{"cordon", "n1"}, `n1 will not be elected; it leads slots? .* and continues to`)
	f.prints(true, []string{"uncordon", "n1"}, `ended: `)
	f.prints(false, []string{"drain", "n1"}, `no other member is eligible: slot \d: .*n2`)

	fewer := []string{"slots", "2", "--per-node", "1", "--reason", "fewer"}
	f.prints(false, fewer, `nothing was changed: these daemons are in the group `+name+`: n1, n2\. .*systemctl stop zkelectd.*`+name+`\.yaml\.disabled`)
	f.prints(false, []string{"slots", "129"}, `count is 129`)
	for _, id := range []string{"n1", "n2"} {
		f.daemons[id].Signal(syscall.SIGTERM)
	}
	for _, id := range []string{"n1", "n2"} {
		f.exit(id)
	}
	f.prints(true, fewer, `has 2 slots, at most 1 per node now, in epoch \d+; start its daemons\n`)
	f.start("n1")
	f.start("n2")
	f.settled("each leads a slot", 2, map[string]int{"n1": 1, "n2": 1})
	f.prints(true, []string{"slots"}, `Drift +the configuration of this host has 3 slots, at most 2 per node, but 2 slots, at most 1 per node are in force`)
	f.prints(true, []string{"slots", "2", "--per-node", "1"}, `has 2 slots, at most 1 per node already`)
	if out, _ := f.runAs("n1", "status", "-o", "json"); !strings.Contains(out, `"group": "`+name+`/1"`) {
		t.Errorf("status: %s", out)
	}
}
