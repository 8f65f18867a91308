package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"zkelectd/internal/test/zkserver"
	"zkelectd/internal/web"
	"zkelectd/internal/zk"
)

// startFailsafe starts members of a group in failsafe mode, which answer each other at http.listen. It returns when the first one, which
// leads, says that the others would promise.
func (f *fleet) startFailsafe(ports []int, ids ...string) {
	f.t.Helper()
	for i, id := range ids {
		f.configure(id, "dc1", 100-i, fmt.Sprintf("zookeeper: {session_timeout: 4s, acl: private, auth: {file: '%s'}}\nfailsafe: {enabled: true}\nhttp: {listen: '127.0.0.1:%d'}\n"+
			"child: {command: [ledger-child], env: {LEDGER: LEDGERFILE}, stop_timeout: 200ms}\n", filepath.Join(f.dir, "auth"), ports[i]))
		f.startSafe(id)
		f.until("it leads", leads(ids[0]))
	}
	ready := "Failsafe ready: would work on without ZooKeeper, by promises of " + strings.Join(ids[1:], ", ")
	f.eventually(ready, func() bool { return strings.Contains(f.shown("status"), ready) }, func() string { return f.shown("status") })
}

// startSafe starts a daemon that has its state directory below that of the fleet.
func (f *fleet) startSafe(id string) {
	f.startCommand(id, f.there("run --create", id, "STATE_DIRECTORY="+filepath.Join(f.dir, "state-"+id)))
}

// there returns a command as it runs on the host of a node: its configuration says how to connect.
func (f *fleet) there(command, id string, env ...string) *exec.Cmd {
	cmd := exec.Command("zkelectd", append(strings.Fields(command), "--config", f.file(id))...)
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// shown returns what a command prints on the host of a.
func (f *fleet) shown(args ...string) string {
	f.t.Helper()
	out, _ := f.there(strings.Join(args, " "), "a").CombinedOutput() // an outage is a warning or an error
	return string(out)
}

// What people look at says before an outage whether failsafe mode would work, and during the outage that it does.
func TestFailsafeModeIsVisible(t *testing.T) {
	t.Parallel()
	servers := zkserver.ForTest(t, zkserver.Options{})
	f := newClosedFleet(t, zk.ACLPrivate, servers.Addr())
	ports := freePorts(t, 3)
	f.startFailsafe(ports, "a", "b", "c")
	f.checkClosed(f.paths.Root, f.paths.FailsafeKeys())
	f.waitForWork("a")
	child := f.child("a")
	diagnosis := ""
	f.eventually("doctor says that all would promise", func() bool { // a node takes part a little after it has registered
		diagnosis = f.shown("doctor")
		return strings.Contains(diagnosis, "  b would promise\n") && strings.Contains(diagnosis, "  c would promise\n")
	}, func() string { return diagnosis })
	leader := web.Endpoint{Addr: fmt.Sprintf("127.0.0.1:%d", ports[0])}
	says := func(path, want string) {
		t.Helper()
		body := ""
		f.eventually(want, func() bool {
			data, err := leader.Read(t.Context(), path, maxAnswer)
			body = string(data)
			return err == nil && strings.Contains(body, want)
		}, func() string { return body })
	}
	servers.Kill()
	says("/leader", `"active":true`)
	says("/metrics", "zkelectd_failsafe_active{group=\"")
	says("/metrics", "zkelectd_failsafe_replies_total{result=\"refused\"} ")
	says("/v1/status", `"asks":["b","c"]`)
	if err := servers.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	says("/leader", `"active":false`)
	if n := strings.Count(f.daemons["b"].Output(), "this host has promised the leader to let nobody take over"); n != 1 {
		t.Errorf("b logs %d times what it has promised", n)
	}
	if out := f.shown("status"); !strings.Contains(out, "Leader   a (site dc1)") || f.child("a") != child {
		t.Errorf("the work was restarted, or status says\n%s", out)
	}
	f.checkInvariants()
}
