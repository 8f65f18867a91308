package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/daemon"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/procinfo"
	"zkelectd/internal/test/faultproxy"
)

// gameday runs a drill on the host of a node, and returns its output.
func (f *fleet) gameday(drill, id string, flags ...string) (string, error) {
	f.t.Helper()
	// The promise is generous: the machine may be busy.
	return f.run(append([]string{"gameday", drill, "--yes", "--takeover", "30s", "--config", f.file(id)}, flags...)...)
}

// The drill kills the daemon that leads, and shows the term that follows beside the promise. One that must not begin changes nothing.
func TestGameday(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	refused := func(want, id string) {
		t.Helper()
		out, err := f.gameday("daemon", id)
		var ended *exec.ExitError
		if !errors.As(err, &ended) || ended.ExitCode() != statusRefused || !strings.Contains(out, want) {
			t.Errorf("on the host of %s: %v, want %q\n%s", id, err, want, out)
		}
	}
	f.join("n1")
	refused("no other member is eligible", "n1")
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
	refused("the group is paused: run "+f.hint("'zkelectd resume'")+" first", "n1")
	f.submit("resume")
	if now := f.snapshot().Current.Record; now.Term != g.Term {
		t.Errorf("leadership has moved: %+v", now)
	}
	f.waitForWork("n1")
	before := f.daemon("n1")
	out, err := f.gameday("daemon", "n1")
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
	out, err = f.gameday("daemon", "n1", "-o", "json")
	if err := errors.Join(err, json.Unmarshal([]byte(out), &result)); err != nil || !result.Kept || result.Leader != "n1" || result.Next != "n2" || result.NextTerm <= result.Term ||
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
		_, err := leadingDaemon(t.Context(), s, file)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if pid, err := (localDaemon{file}).pid(t.Context()); pid != os.Getpid() || err != nil {
		t.Errorf("the daemon is process %d, %v, want %d", pid, err, os.Getpid())
	}
}

// A cut is undone by its end, and by its watchdog if the drill has been killed. A program in the place of nft notes
// what it is asked.
func TestCutIsUndone(t *testing.T) {
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	script := "#!/bin/sh\necho \"$*\" >>" + calls + "\n[ \"$1\" != -f ] || cat >>" + calls + "\n"
	if err := os.WriteFile(filepath.Join(dir, "nft"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	cut, err := newNetworkCut(t.Context(), []string{"127.0.0.1:2181"})
	if err != nil {
		t.Fatal(err)
	}
	if err := cut.begin(time.Minute); err != nil {
		t.Fatal(err)
	}
	pid := cut.watchdog.Process.Pid
	if err := errors.Join(cut.end(), cut.end()); err != nil {
		t.Error(err)
	}
	if got := read(calls); strings.Count(got, "-f -\n") != 2 || !strings.Contains(got, "ip daddr 127.0.0.1 tcp dport 2181 drop") || strings.Count(got, undoCutRules) != 1 {
		t.Errorf("nft was asked:\n%s", got)
	}
	if running(fmt.Sprint(pid)) {
		t.Errorf("the watchdog %d runs after the end of the cut", pid)
	}
	if err := cut.begin(-undoMargin); err != nil { // as if the margin was over
		t.Fatal(err)
	}
	cut.watchdog.Wait()
	if got := read(calls); strings.Count(got, strings.TrimPrefix(undoCut, "nft ")) != 2 {
		t.Errorf("nft was asked:\n%s", got)
	}
}

// The drill network, with a program in the place of nft that has the test cut the path of the leader and of the drill.
func TestGamedayOfTheNetwork(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	const session = "zookeeper: {session_timeout: 3s}\n"
	l := newLink(t, shared.Addr())
	direct := f.servers
	f.servers = []string{l.Addr()}
	f.startLeader("n1", session)
	f.servers = direct
	f.configure("n2", "dc1", 50, session)
	f.start("n2")
	f.until("n2 has joined", func(g status.Group) bool { return len(g.Members) == 2 && leads("n1")(g) })
	bin, mark := filepath.Join(f.dir, "bin"), filepath.Join(f.dir, "cut")
	script := fmt.Sprintf("#!/bin/sh\nif grep -q drop; then touch %s; else rm -f %[1]s; fi\n", mark)
	if err := errors.Join(os.Mkdir(bin, 0o700), os.WriteFile(filepath.Join(bin, "nft"), []byte(script), 0o700)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("zkelectd", "gameday", "network", "--for", "6s", "--yes", "--takeover", "30s", "--config", f.file("n1"))
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	drill := f.startCommand("drill", cmd)
	isCut := func() bool { _, err := os.Stat(mark); return err == nil }
	f.eventually("the path is cut", isCut)
	l.SetMode(faultproxy.Refuse)
	f.until("n2 leads", leads("n2"))
	f.eventually("the path is restored", func() bool { return !isCut() })
	l.SetMode(faultproxy.Pass)
	out := drill.output
	if code := f.exit("drill"); code != 0 || !strings.Contains(out(), "; to undo that by hand: nft delete table inet zkelectd_gameday.\n") || !strings.Contains(out(), "\nkept: ") {
		t.Errorf("exit status %d\n%s", code, out())
	}
	f.checkInvariants()
}

// The rules drop what goes to the servers and what comes from them, and nothing else.
func TestCutRules(t *testing.T) {
	got := cutRules([]netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:2181"), netip.MustParseAddrPort("[fe80::1%eth0]:2182"), netip.MustParseAddrPort("[::ffff:10.0.0.2]:2183")})
	for _, want := range []string{
		"ip daddr 10.0.0.1 tcp dport 2181 drop", "ip saddr 10.0.0.1 tcp sport 2181 drop", "ip6 daddr fe80::1 tcp dport 2182 drop", "ip6 saddr fe80::1 tcp sport 2182 drop",
		"ip daddr 10.0.0.2 tcp dport 2183 drop", "ip saddr 10.0.0.2 tcp sport 2183 drop",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q:\n%s", want, got)
		}
	}
	if strings.Count(got, "drop") != 6 {
		t.Errorf("more rules than servers:\n%s", got)
	}
}
