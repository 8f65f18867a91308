package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/cluster"
	"zkelectd/internal/daemon"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/procinfo"
)

// gameday runs a drill on the host of a node, and returns its output.
func (f *fleet) gameday(id string, flags ...string) (string, error) {
	f.t.Helper()
	// The promise is generous: the machine may be busy.
	return f.run(append([]string{"gameday", "--yes", "--takeover", "30s", "--config", f.file(id)}, flags...)...)
}

// The drill kills the daemon that leads, and shows the term that follows beside the promise. One that must not begin changes nothing.
func TestGameday(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	refused := func(want, id string) {
		t.Helper()
		out, err := f.gameday(id)
		var ended *exec.ExitError
		if !errors.As(err, &ended) || ended.ExitCode() != statusRefused || !strings.Contains(out, want) {
			t.Errorf("on the host of %s: %v, want %q\n%s", id, err, want, out)
		}
	}
	f.join("n1")
	refused("nobody could take over from n1", "n1")
	for i, id := range []string{"n2", "n3"} {
		f.configure(id, "dc1", 99-i, "election: {exclusion: 1s}\n")
		f.start(id)
		f.until(id+" has joined", func(g status.Group) bool { return len(g.Members) == i+2 && leads("n1")(g) })
	}
	g := f.until("n1 leads", leads("n1"))
	refused("n1 leads with the guard ", "n2")
	f.configure("n4", "dc1", 50, "")
	refused("no zkelectd that this user can ask runs with "+f.file("n4"), "n4")
	f.submit("pause")
	refused("the group is paused: run 'zkelectd resume -g "+f.groupName()+" --config ", "n1")
	f.submit("resume")
	if now := f.snapshot().Current.Record; now.Term != g.Term {
		t.Errorf("leadership has moved: %+v", now)
	}
	f.waitForWork("n1")
	before := f.daemon("n1")
	out, err := f.gameday("n1")
	for _, want := range []string{
		"kills the daemon of n1 (leader of ", "by policy n2, starts its work within 600ms (kill 600ms)", "  n2  ", "\nkept: ", "and --takeover 30s\n",
	} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%v, want %q:\n%s", err, want, out)
		}
	}
	f.until("n1 leads again", leads("n1"))
	f.waitForWork("n1")
	var result drillResult
	out, err = f.gameday("n1", "-o", "json")
	if err := errors.Join(err, json.Unmarshal([]byte(out), &result)); err != nil || !result.Kept || result.Leader != "n1" || result.Next != "n2" ||
		time.Duration(result.Promised) != 600*time.Millisecond {
		t.Errorf("%v\n%s", err, out)
	}
	if f.daemon("n1") == before {
		t.Errorf("the daemon of n1 still is process %d", before)
	}
	f.checkInvariants()
}

// Only the kernel names the process that a drill kills, and a record in ZooKeeper that names another one has it
// refused.
func TestGamedayOfAForgedRecord(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "zkelectd.yaml")
	socket, err := daemon.NewReloadSocket(file)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", socket) // this test is the daemon
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	sleeper := exec.Command("sleep", "1000")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sleeper.Process.Kill(); sleeper.Wait() })
	boot, err := procinfo.BootID()
	if err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]struct {
		guard  int
		change func(*cluster.Node)
	}{
		"": {os.Getppid(), func(*cluster.Node) {}},
		fmt.Sprintf("process %d, the daemon that runs with %s here, has the guard %d", os.Getpid(), file, os.Getppid()): {sleeper.Process.Pid, func(*cluster.Node) {}},
		"the registered process":                                                     {os.Getppid(), func(n *cluster.Node) { n.Started++ }},
		"the id n1 was registered before this host was":                              {os.Getppid(), func(n *cluster.Node) { n.Boot = "another" }},
		"this drill runs on its host: the id n1 is registered by the host elsewhere": {os.Getppid(), func(n *cluster.Node) { n.Host = "elsewhere" }},
	} {
		n := cluster.Node{ID: "n1", Host: procinfo.Hostname(), PID: c.guard, Boot: boot}
		if n.Started, err = procinfo.StartTime(c.guard); err != nil {
			t.Fatal(err)
		}
		c.change(&n)
		var s cluster.Snapshot
		s.Members = []cluster.Member{{Incarnation: cluster.Incarnation{Name: "n1-0000000000000001-n_0000000001", ID: "n1"}, Node: cluster.Stored[cluster.Node]{Exists: true, Record: n}}}
		s.Current = cluster.Stored[cluster.Current]{Exists: true, Record: cluster.Current{Node: "n1", Incarnation: "n1-0000000000000001-n_0000000001"}}
		pidfd, err := leadingDaemon(t.Context(), s, file)
		if err == nil {
			unix.Close(pidfd)
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if pid, err := listenerAt(t.Context(), file); pid != os.Getpid() || err != nil {
		t.Errorf("the daemon is process %d, %v, want %d", pid, err, os.Getpid())
	}
}
