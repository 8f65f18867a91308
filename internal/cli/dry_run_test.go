package cli

import (
	"strings"
	"testing"
)

// With --dry-run a request prints what would happen, and changes nothing.
func TestDryRunsOfRequests(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("a", "b")
	before := f.snapshot()
	for _, c := range []struct{ args, want string }{
		{"move --to b", "b (dc1) takes over: move: moved to b by"},
		{"move", "moves leadership from a (dc1) to b (dc1) for 10m0s"},
		{"move b --at 23:59:59", "as things are now: moves leadership from a (dc1) to b (dc1)"},
		{"move --at 23:59:59", "a (dc1) continues to lead"},
		{"move --cancel", "nothing to do: no move is scheduled"},
		{"drain a", "b (dc1) takes over: drain: "},
		{"cordon a", "a (dc1) continues to lead"},
		{"pause --hard", "a (dc1) continues to lead"},
		{"reelect", "a (dc1) continues to lead"},
		{"resume", "nothing to do: "},
		{"uncordon a", "nothing to do: "},
		{"clear-strikes --all", "nothing to do: "},
	} {
		if out := f.exits(0, append(strings.Fields(c.args), "--dry-run")...); !strings.Contains(out, c.want) {
			t.Errorf("%s: %s, want %q", c.args, out, c.want)
		}
	}
	f.exits(statusError, "move", "--to", "", "--dry-run")
	f.exits(statusRefused, "move", "--to", "nobody", "--dry-run")
	after := f.snapshot()
	if after.Control.Stat != before.Control.Stat || after.Elected.Stat != before.Elected.Stat || after.Control.Exists != before.Control.Exists {
		t.Errorf("something was written: %+v, %+v", after.Control, after.Elected.Stat)
	}
}
