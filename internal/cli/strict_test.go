package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"zkelectd/internal/operator/status"
)

// ZooKeeper goes on naming a leader whose daemon hangs. status then says that its lease is not confirmed, and leader --is --strict says no.
func TestHungLeaderIsNotConfirmed(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	addr := "127.0.0.1:" + closedPort(t)
	f.startLeader("a", fmt.Sprintf("http: {listen: '%s'}\nzookeeper: {session_timeout: 40s}\n", addr))
	strictly := []string{"leader", "--is", "--id", "a", "--strict"}
	own := func() (string, error) {
		out, err := zkelectd("leader", "--is", "--strict", "--config", f.file("a"))
		return out, err
	}
	confirmed := func() {
		t.Helper()
		f.eventually("the lease of a is confirmed", func() bool {
			asked, err := f.run(strictly...)
			local, errLocal := own()
			shown, errShown := f.run("status")
			return err == nil && asked == "" && errLocal == nil && local == "" && errShown == nil &&
				strings.Contains(shown, " left\n") && !strings.Contains(shown, "not confirmed")
		})
	}
	confirmed()
	if out := f.exits(1, "leader", "--is", "--id", "b", "--strict"); out != "" {
		t.Errorf("b: %s", out)
	}

	daemon := f.daemon("a")
	syscall.Kill(daemon, syscall.SIGSTOP)
	reason := fmt.Sprintf("no answer from a at %s for 1s", addr)
	out, err := f.run("status")
	if err != nil || !strings.Contains(out, "Leader   a (site dc1), term ") || !strings.Contains(out, "\nLease    not confirmed: "+reason+"\n") {
		t.Errorf("%v\n%s", err, out)
	}
	if out := f.exits(checkWarning, "status", "--check"); !strings.HasPrefix(out, "ZKELECTD WARNING - the lease of a is not confirmed: "+reason) {
		t.Errorf("status --check does not ask the leader: %s", out)
	}
	f.exitsWith(0, "\nWhy      it stays elected, but its lease is not confirmed: "+reason+"\n", "whatif")
	f.exitsWith(1, "a, unconfirmed  none", "whatif", "--all")
	out = f.exits(0, "status", "-o", "json")
	var g status.Group
	if err := json.Unmarshal([]byte(out), &g); err != nil || g.Leader != "a" || g.LeaseUnconfirmed != reason || g.LeaseRemaining != 0 {
		t.Errorf("%v\n%s", err, out)
	}
	f.exits(0, "leader", "--is", "--id", "a")
	f.exitsWith(1, "the lease of a is not confirmed: "+reason, strictly...)
	if out, err := own(); err == nil || !strings.Contains(out, "the lease of a is not confirmed: no answer on http.listen "+addr) {
		t.Errorf("asked at http.listen: %v %s", err, out)
	}
	syscall.Kill(daemon, syscall.SIGCONT)
	confirmed()
	f.checkInvariants()
}
