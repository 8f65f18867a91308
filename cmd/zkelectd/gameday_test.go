package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/gameday"
	"zkelectd/internal/procinfo"
	"zkelectd/internal/status"
)

// gameday runs a drill that keeps its promises, and returns its report.
func (f *fleet) gameday(drill string, flags ...string) (report cluster.GameDay) {
	f.t.Helper()
	// The promise is generous: the machine may be busy.
	cmd := exec.Command("zkelectd", append([]string{"gameday", drill, "--yes", "--takeover", "30s", "-o", "json", "--zk", f.servers[0], "--root", f.paths.Root}, flags...)...)
	var messages strings.Builder
	cmd.Stderr = &messages
	out, err := cmd.Output()
	if jsonErr := json.Unmarshal(out, &report); err != nil || jsonErr != nil || report.Result != gameday.Kept {
		f.t.Fatalf("gameday %s: %v, %v\n%s%s", drill, err, jsonErr, out, &messages)
	}
	return report
}

// seenIn returns what a report says of a check.
func seenIn(g cluster.GameDay, what string) string {
	for _, c := range g.Checks {
		if c.What == what {
			return c.Seen
		}
	}
	return ""
}

// The drills move and kill what they name, keep their promises, and are recorded.
func TestGameday(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("n1", "n2", "n3")
	f.waitForWork("n1")
	moved := f.gameday("move")
	if moved.Node != "n1" || moved.Leader != "n1" || seenIn(moved, "who took over") != "n2" || seenIn(moved, "leadership came back") != "n1" {
		t.Errorf("move: %+v", moved)
	}
	if h, err := f.run("history"); err != nil || strings.Count(h, "gameday: the drill move") != 2 {
		t.Errorf("the history does not name the drill twice: %v\n%s", err, h)
	}
	f.waitForWork("n1")
	child := f.child("n1")
	again := f.gameday("child")
	if again.Term != f.until("n1 leads", leads("n1")).Term || !strings.HasPrefix(seenIn(again, "child was started again"), "after ") || running(fmt.Sprint(child)) {
		t.Errorf("child %d: %+v", child, again)
	}
	f.waitForWork("n1")
	daemon := f.daemon("n1")
	killed := f.gameday("daemon")
	if seenIn(killed, "who took over") != "n2" || seenIn(killed, "n1 is a member again") != "yes" || f.daemon("n1") == daemon {
		t.Errorf("daemon %d: %+v", daemon, killed)
	}
	out, err := f.run("history", "--gamedays", "-o", "json")
	var all []cluster.GameDay
	if jsonErr := json.Unmarshal([]byte(out), &all); err != nil || jsonErr != nil || len(all) != 3 || all[2].Drill != "daemon" || all[0].Result != gameday.Kept || all[0].By == "" {
		t.Errorf("history: %v, %v\n%s", err, jsonErr, out)
	}
	if out, err := f.run("history", "--gamedays", "-n", "1"); err != nil || strings.Contains(out, " child ") || !strings.Contains(out, "  daemon  n1") {
		t.Errorf("history: %v\n%s", err, out)
	}
	f.checkInvariants()
}

// A drill that must not begin changes nothing.
func TestGamedayRefusals(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("n1")
	refused := func(want string, args ...string) {
		t.Helper()
		out, err := f.run(append([]string{"gameday"}, args...)...)
		var ended *exec.ExitError
		if !errors.As(err, &ended) || ended.ExitCode() != statusRefused || !strings.Contains(out, want) {
			t.Errorf("%v: %v, want %q\n%s", args, err, want, out)
		}
	}
	refused("no other member is eligible", "move", "--yes")
	f.configure("n2", "dc1", 50, "child: {none: true}\n")
	f.start("n2")
	g := f.until("n2 has joined", func(g status.Group) bool { return len(g.Members) == 2 && leads("n1")(g) })
	refused("add --yes, or confirm it at a terminal", "move")
	if out, err := f.run("pause"); err != nil {
		t.Fatal(out)
	}
	refused("the group is paused: run "+f.hint("'zkelectd resume'")+" first", "daemon", "--yes")
	if out, err := f.run("resume"); err != nil {
		t.Fatal(out)
	}
	other := cluster.GameDays{Drills: []cluster.GameDay{{Drill: "child", By: "ann@n9", Until: time.Now().Add(time.Hour)}}}
	f.write(cluster.Op{Kind: cluster.OpCreate, Path: f.paths.GameDays(), Data: cluster.Encode(&other)})
	refused("ann@n9 runs the drill child, until ", "move", "--yes")
	f.write(overwrite(f.paths.GameDays(), "garbage"))
	f.failsWith("the next drill replaces it", "history", "--gamedays")

	if now := f.snapshot().Current.Record; now.Term != g.Term {
		t.Errorf("leadership has moved: %+v", now)
	}
}

// A record in ZooKeeper cannot make a drill kill any other process than zkelectd of this host.
func TestGamedayOfAForgedRecord(t *testing.T) {
	t.Parallel()
	sleeper := exec.Command("sleep", "1000")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sleeper.Process.Kill(); sleeper.Wait() })
	started, err := procinfo.StartTime(sleeper.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	boot, err := procinfo.BootID()
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*cluster.Node){
		"which the record of n1 names, is not zkelectd":                              func(*cluster.Node) {},
		"the registered process":                                                     func(n *cluster.Node) { n.Started++ },
		"the id n1 was registered before this host was":                              func(n *cluster.Node) { n.Boot = "another" },
		"this drill runs on its host: the id n1 is registered by the host elsewhere": func(n *cluster.Node) { n.Host = "elsewhere" },
	} {
		n := cluster.Node{ID: "n1", Host: procinfo.Hostname(), PID: sleeper.Process.Pid, Boot: boot, Started: started}
		change(&n)
		var s cluster.Snapshot
		s.Members = []cluster.Member{{Incarnation: cluster.Incarnation{Name: "n1-0000000000000001-n_0000000001", ID: "n1"}, Node: cluster.Stored[cluster.Node]{Exists: true, Record: n}}}
		s.Current = cluster.Stored[cluster.Current]{Exists: true, Record: cluster.Current{Node: "n1", Incarnation: "n1-0000000000000001-n_0000000001"}}
		if _, err := newLocalLeader(s, group{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A cut is undone by its end, and by its watchdog if the drill has been killed. A program in the place of nft notes what it is asked.
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
	if got := read(calls); strings.Count(got, "-f -\n") != 2 || !strings.Contains(got, "ip daddr 127.0.0.1 tcp dport 2181 drop") || strings.Count(got, gameday.UndoRules) != 1 {
		t.Errorf("nft was asked:\n%s", got)
	}
	if running(fmt.Sprint(pid)) {
		t.Errorf("the watchdog %d runs after the end of the cut", pid)
	}
	if err := cut.begin(-undoMargin); err != nil { // as if the margin was over
		t.Fatal(err)
	}
	cut.watchdog.Wait()
	if got := read(calls); strings.Count(got, strings.TrimPrefix(gameday.Undo, "nft ")) != 2 {
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
	f.servers = []string{l.listener.Addr().String()}
	f.startLeader("n1", session)
	path := f.servers[0]
	f.servers = direct
	f.configure("n2", "dc1", 50, session)
	f.start("n2")
	f.until("n2 has joined", func(g status.Group) bool { return len(g.Members) == 2 && leads("n1")(g) })
	bin, mark := filepath.Join(f.dir, "bin"), filepath.Join(f.dir, "cut")
	script := fmt.Sprintf("#!/bin/sh\nif grep -q drop; then touch %s; else rm -f %[1]s; fi\n", mark)
	if err := errors.Join(os.Mkdir(bin, 0o700), os.WriteFile(filepath.Join(bin, "nft"), []byte(script), 0o700)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("zkelectd", "gameday", "network", "--for", "6s", "--yes", "--takeover", "30s", "--zk", path, "--root", f.paths.Root)
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	drill := f.startCommand("drill", cmd)
	isCut := func() bool { _, err := os.Stat(mark); return err == nil }
	f.eventually("the path is cut", isCut)
	l.set(true)
	f.until("n2 leads", leads("n2"))
	f.eventually("the path is restored", func() bool { return !isCut() })
	l.set(false)
	out := drill.output
	if code := f.exit("drill"); code != 0 || !strings.Contains(out(), "To undo the cut by hand: nft delete table inet zkelectd_gameday\n") || !strings.Contains(out(), "\nresult: kept\n") {
		t.Errorf("exit status %d\n%s", code, out())
	}
	for _, what := range []string{"who took over", "n1 is a member again"} {
		if !strings.Contains(out(), "\n"+what) {
			t.Errorf("%q was not checked:\n%s", what, out())
		}
	}
	f.checkInvariants()
}
