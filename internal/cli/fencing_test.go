package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
)

// fenceScript writes an executable script that notes what it was given in a file, with the time since boot, and then does as body says.
func (f *fleet) fenceScript(name, body string) (path, log string) {
	f.t.Helper()
	path, log = filepath.Join(f.dir, name), filepath.Join(f.dir, name+".log")
	script := "#!/bin/sh\noptions=$(cat)\n{ read up rest < /proc/uptime; echo $up $options; } >> " + log + "\n" + body + "\n"
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		f.t.Fatal(err)
	}
	return path, log
}

// fencings returns the runs of a script: when each was, and what it was given.
func fencings(t *testing.T, log string) (times []time.Duration, inputs []string) {
	t.Helper()
	data, err := os.ReadFile(log)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		at, input, _ := strings.Cut(strings.TrimSpace(line), " ")
		up, err := time.ParseDuration(at + "s")
		if err != nil {
			t.Fatal(err)
		}
		times, inputs = append(times, up), append(inputs, input)
	}
	return times, inputs
}

// loseLeader starts a and b, and kills a's guard and daemon, as if a's host were lost. It returns a's term
// once its child is dead.
func (f *fleet) loseLeader(fencing string) (term int64) {
	f.t.Helper()
	f.joinWith("zookeeper: {session_timeout: 10s}\nfencing: {"+fencing+"}\n", "a", "b")
	lost := f.until("a leads", leads("a"))
	f.waitForWork("a")
	child := f.child("a")
	f.crashUnwatched("a")
	f.waitForDeath(child)
	return lost.Term
}

func TestFencingEndsTheWaitForALostLeader(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	script, log := f.fenceScript("power-off", "exit 0")
	term := f.loseLeader("levels: {command: [" + script + "]}, skip_wait: true")
	f.until("b leads", leads("b"))
	f.waitForWork("b")
	times, inputs := fencings(t, log)
	if len(times) != 1 {
		t.Fatalf("fenced %d times: %q", len(times), inputs)
	}
	all := f.checkInvariants()
	// The lease wait for T = 10 s takes 6.1 s.
	if after := time.Duration(all[len(all)-1].start) - times[0]; after > 5*time.Second {
		t.Errorf("b began %s after a was fenced", after)
	}
	host, _ := os.Hostname()
	for _, want := range []string{`"node":"a"`, `"site":"dc1"`, `"by":"b"`, fmt.Sprintf(`"host":%q`, host), fmt.Sprintf(`"term":%d`, term)} {
		if !strings.Contains(inputs[0], want) {
			t.Errorf("%s lacks %s", inputs[0], want)
		}
	}
	if r := f.snapshot().Fence.Record.Fencing; len(r) != 1 || r[0] != (cluster.FencingResult{Node: "a", Term: term, By: script}) {
		t.Errorf("the fence says %+v", r)
	}
	for _, args := range [][]string{{"history"}, {"explain"}} {
		f.succeedsWith("fenced a", args...)
	}
}

// A monitor that fails is a problem of the node, which people see before a failover.
func TestTheMonitorOfFencing(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	script, log := f.fenceScript("fence_test", `case "$options" in
*action=metadata*) echo '<resource-agent><parameters><parameter name="ip" required="1"><content type="string"/></parameter></parameters>
<actions><action name="off"/><action name="reboot"/><action name="monitor"/></actions></resource-agent>';;
*action=monitor*) echo the device is away >&2; exit 1;;
esac`)
	f.configure("a", "dc1", 100, "fencing: {levels: {agent: "+script+", nodes: {a: {ip: 192.0.2.1}, b: {ip: 192.0.2.2}}}}\n")
	f.start("a")
	f.eventually("the problem is shown", func() bool {
		out, _ := f.run("status")
		return strings.Contains(out, "fence_test could not fence b: action=monitor: exited with status 1: the device is away")
	})
	_, inputs := fencings(t, log)
	if all := strings.Join(inputs, "\n"); strings.Contains(all, "action=off") || strings.Contains(all, "action=monitor ip=192.0.2.1") {
		t.Errorf("asked: %s", all)
	}
}

// People fence with the configuration of a host; each act is recorded.
func TestFenceCommand(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	works := filepath.Join(f.dir, "works")
	script, log := f.fenceScript("power-off", "test -e "+works)
	f.configure("a", "dc1", 100, "fencing: {levels: {command: ["+script+"]}}\n")
	run := func(args ...string) (string, error) { return f.runAs("a", args...) }
	if out, err := run("fence", "n9"); err == nil || !strings.Contains(out, "add --yes") {
		t.Errorf("without a terminal: %v\n%s", err, out)
	}
	if out, err := run("fence", "n9", "--dry-run"); err != nil || !strings.Contains(out, "a command, which cannot be asked") {
		t.Errorf("%v\n%s", err, out)
	}
	if times, _ := fencings(t, log); len(times) != 0 {
		t.Error("fenced without a confirmation")
	}
	if out, err := run("fence", "n9", "--yes"); err == nil || !strings.Contains(out, "it is not certain that n9 is off") {
		t.Errorf("%v\n%s", err, out)
	}
	put(t, works, "")
	if out, err := run("fence", "n9", "--yes"); err != nil || !strings.Contains(out, "n9 is off") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err := run("history", "--fencing")
	if err != nil || strings.Count(out, "n9") != 2 || !strings.Contains(out, "failed") || !strings.Contains(out, "fenced") {
		t.Errorf("%v\n%s", err, out)
	}
	f.failsWith("the configuration has no fencing", "fence", "n9", "--yes")
}

// A configuration that an agent would not understand is refused before it is needed.
func TestCheckAsksFenceAgents(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	script, log := f.fenceScript("fence_test", `echo '<resource-agent><parameters><parameter name="ip" required="1"><content type="string"/></parameter></parameters>
<actions><action name="off"/><action name="reboot"/></actions></resource-agent>'`)
	f.configure("a", "dc1", 100, "fencing: {levels: {agent: "+script+", nodes: {b: {ipp: 192.0.2.2}}}}\n")
	out, err := f.runAs("a", "check")
	for _, want := range []string{"b: ipp is not an option of the agent; did you mean ip?", "b: ip is required by the agent, and not set"} {
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("%v: %s, want %q", err, out, want)
		}
	}
	if _, inputs := fencings(t, log); strings.Join(inputs, " ") != "action=metadata" {
		t.Errorf("asked %q", inputs)
	}
}
