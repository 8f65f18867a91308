package cli

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store"
)

// Check says which groups are new, and creates nothing: a mistyped root would start the work a second time.
func TestCheckSaysWhatIsNew(t *testing.T) {
	t.Parallel()
	base := fmt.Sprintf("/estates/e%d", groups.Add(1))
	f := openFleet(t, base+"/billing")
	check := func(root string, isNew bool, texts ...string) {
		t.Helper()
		out, err := exec.Command("zkelectd", "check", "--zk", f.servers[0], "--root", root, "--", "sleep", "1").CombinedOutput()
		if err != nil || strings.Contains(string(out), "warning: new: there is no group at "+root+" on "+f.servers[0]) != isNew {
			t.Errorf("%s: %v\n%s", root, err, out)
		}
		for _, text := range texts {
			if !strings.Contains(string(out), text) {
				t.Errorf("%s: want %q:\n%s", root, text, out)
			}
		}
	}
	check(f.paths.Root, true)
	if err := store.EnsureIdentity(t.Context(), f.session, base, "billing", f.paths.Root, cluster.KindSingle); err != nil {
		t.Fatal(err)
	}
	check(f.paths.Root, false)
	check(base+"/biling", true, " (is "+f.paths.Root+" meant?): run creates it")
	check(base+"/other", true, f.servers[0]+": run creates it")
	if _, _, err := f.session.Get(t.Context(), base+"/biling", false); err == nil {
		t.Error("check has created the group")
	}
}
