package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/doctor"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/zk"
)

// machineChecks depend on the machine that the tests run on.
var machineChecks = []string{"containment", "locked memory", "open files", "processes", "ensemble"}

// examineWith runs doctor with a configuration file, and returns the findings that are not ok, apart from those of the machine.
func (f *fleet) examineWith(file string) (report doctorReport, bad []string) {
	f.t.Helper()
	cmd := exec.Command("zkelectd", "doctor", "--config", file, "-o", "json")
	cmd.Env = append(os.Environ(), f.env...)
	out, err := cmd.Output()
	if err := json.Unmarshal(out, &report); err != nil {
		f.t.Fatalf("%v: %s", err, out)
	}
	code := 0
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		code = exit.ExitCode()
	}
	if want := slices.Index([]doctor.Result{doctor.OK, doctor.Warn, doctor.Fail}, report.Result); code != want {
		f.t.Errorf("exit status %d with %s", code, report.Result)
	}
	for _, c := range report.Checks {
		if c.Result != doctor.OK && !slices.Contains(machineChecks, c.Check) {
			bad = append(bad, fmt.Sprintf("%s %s: %s", c.Result, c.What(), c))
		}
	}
	return report, bad
}

// Each fault changes its own line, with real servers and daemons.
func TestDoctor(t *testing.T) {
	t.Parallel()
	f := newClosedFleet(t, zk.ACLPrivate)
	settings := func(id string) string {
		return fmt.Sprintf("zookeeper: {acl: private, session_timeout: 10s, session_file: '%s'}\nhttp: {listen: 'unix:%s'}\n",
			f.socket(id)+".session", f.socket(id))
	}
	for i, id := range []string{"n1", "n2"} {
		f.configure(id, "dc1", 100-i, settings(id))
		f.start(id)
		f.answers(id, "/readyz", 200)
	}
	f.until("n1 leads", func(g status.Group) bool { return len(g.Members) == 2 && leads("n1")(g) })
	report, bad := f.examineWith(f.file("n1"))
	if len(bad) > 0 || len(report.Checks) < 20 {
		t.Fatalf("%d checks, not ok: %q", len(report.Checks), bad)
	}
	only := func(name, file, want string) {
		t.Helper()
		if _, bad := f.examineWith(file); len(bad) != 1 || !strings.Contains(bad[0], want) {
			t.Errorf("%s: %q, want only %q", name, bad, want)
		}
	}
	healthy := read(f.file("n1"))
	other := func(name, old, changed string) string {
		t.Helper()
		if !strings.Contains(healthy, old) {
			t.Fatalf("%q is not in %s", old, healthy)
		}
		path := f.file(name)
		put(t, path, strings.Replace(healthy, old, changed, 1))
		return path
	}
	only("a dead server", other("server", "servers: [", "servers: [127.0.0.1:"+closedPort(t)+", "), "fail server 127.0.0.1:")
	only("a missing program", other("program", "[ledger-child]", "[/nowhere/child]"), "fail programs "+groupName(f)+": child.command: /nowhere/child does not exist")
	only("another ACL", other("acl", "acl: private", "acl: readable"), "warn permissions "+groupName(f)+": these znodes have another ACL")
	only("another policy", other("policy", "policy: {", "policy: {filter: [member.id != 'n9'], "), "warn policy "+groupName(f))
	only("no daemon answers", other("http", "unix:"+f.socket("n1"), "unix:"+f.socket("nobody")), "fail endpoint unix:"+f.socket("nobody"))

	// A member with another version, as its record says, until the member writes it again.
	f.eventually("a member with another version", func() bool {
		member := f.snapshot().Members[1].Node
		member.Record.Version = "v0"
		f.write(cluster.Op{Kind: cluster.OpSet, Path: f.paths.Node(member.Record.ID), Version: cluster.AnyVersion, Data: cluster.Encode(&member.Record)})
		_, bad := f.examineWith(f.file("n1"))
		return len(bad) == 1 && strings.Contains(bad[0], "warn versions "+groupName(f)+": the members run different versions: ")
	})
}

func groupName(f *fleet) string { return f.paths.Root[strings.LastIndexByte(f.paths.Root, '/')+1:] }

// A daemon may have on its command line that it has no child.
func TestDoctorBesideADaemonWithoutAChild(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.configure("n1", "dc1", 1, "child: {env: {A: b}}\n")
	if _, bad := f.examineWith(f.file("n1")); !slices.ContainsFunc(bad, func(line string) bool { return strings.Contains(line, "child.command: is not set") }) {
		t.Errorf("no daemon runs: %q", bad)
	}
	f.start("n1", "--config", f.file("n1"), "--no-child")
	f.until("n1 leads", leads("n1"))
	report, bad := f.examineWith(f.file("n1"))
	for _, line := range bad {
		if strings.Contains(line, "child") {
			t.Errorf("%s", line)
		}
	}
	for _, c := range report.Checks {
		if strings.Contains(c.Seen, "stop timeout of 0s") {
			t.Errorf("%+v", c)
		}
	}
}

// Servers that accept a connection and never answer keep doctor for its limit, and no longer.
func TestDoctorEndsIfNothingAnswers(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // nobody accepts: the kernel does
	f := &fleet{t: t, servers: []string{l.Addr().String()}, dir: t.TempDir(), paths: cluster.Paths{Root: "/g"}}
	f.configure("n1", "dc1", 1, "http: {listen: '"+l.Addr().String()+"'}\n")
	began := time.Now()
	report, _ := f.examineWith(f.file("n1"))
	if took := time.Since(began); report.Result != doctor.Fail || took > 4*doctorTimeout { // a loaded machine takes longer
		t.Errorf("%s after %s", report.Result, took)
	}
}

// A slot without a READY leader is counted as one, whatever its severity, and one with a READY leader is not.
func TestDoctorOfSlots(t *testing.T) {
	view := func(slot, state string, severity status.Severity) groupStatus {
		return groupStatus{Group: status.Group{Slot: slot, State: state, Severity: severity}}
	}
	var out doctor.Group
	addSlots(&out, []groupStatus{
		view("0", string(cluster.CurrentReady), status.SeverityOK), view("1", status.StateWaiting, status.SeverityWarning),
		view("2", string(cluster.CurrentReady), status.SeverityCritical), view("3", string(cluster.CurrentProgress), status.SeverityWarning),
	})
	if out.Slots != 4 || !slices.Equal(out.Leaderless, []string{"1", "3"}) || out.Severity != status.SeverityCritical {
		t.Errorf("%+v", out)
	}
}
