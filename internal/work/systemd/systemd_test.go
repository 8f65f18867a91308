package systemd

import (
	"bufio"
	"context"
	"math"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	permit = "/sys/fs/cgroup/system.slice/zkelectd.service/zkelectd-permit-app.service"
	gate   = permit + "/cgroup.events"
	socket = "/run/zkelectd/app.service.sock"
	token  = "/run/zkelectd.units/app.service.env"
)

// fakeManager plays systemd on a real bus, for answers that a real systemd cannot be made to give. The real one is tested by
// scripts/systemd-guest-unit.sh.
type fakeManager struct {
	conn *dbus.Conn

	mu         sync.Mutex
	properties map[string]any
	refusal    *dbus.Error
	result     string // the result of jobs; empty if they never end
	jobs       []string
}

// newBus starts a D-Bus daemon for this test and returns its address.
func newBus(t *testing.T) (address string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "dbus-daemon", "--session", "--nofork", "--nopidfile", "--print-address",
		"--address=unix:path="+filepath.Join(t.TempDir(), "bus"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: see scripts/install-dbus.sh", err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	address, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", strings.TrimSpace(address))
	return strings.TrimSpace(address)
}

func newFakeManager(t *testing.T) *fakeManager {
	t.Helper()
	conn, err := dbus.Connect(newBus(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	m := &fakeManager{conn: conn, properties: unitProperties(), result: "done"}
	for _, export := range []struct{ path, face string }{
		{"/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"},
		{"/org/freedesktop/systemd1", "org.freedesktop.DBus.Properties"},
		{"/org/freedesktop/systemd1/unit/app_2eservice", "org.freedesktop.DBus.Properties"},
	} {
		if err := conn.Export(m, dbus.ObjectPath(export.path), export.face); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.RequestName("org.freedesktop.systemd1", dbus.NameFlagDoNotQueue); err != nil {
		t.Fatal(err)
	}
	return m
}

type assert struct {
	Kind            string
	Trigger, Negate bool
	Parameter       string
	State           int32
}

type command struct {
	Path        string
	Argv, Flags []string
	A, B, C, D  uint64
	Pid         uint32
	Code, State int32
}

type envFile struct {
	Path     string
	Optional bool
}

// unitProperties returns the properties of a unit with the drop-in.
func unitProperties() map[string]any {
	return map[string]any{
		"LoadState": "loaded", "ActiveState": "inactive", "Slice": "system-app.slice", "Type": "notify", "RemainAfterExit": false,
		"BindsTo": []string{"zkelectd.service"}, "Asserts": []assert{{"AssertPathExists", false, false, permit, 0}},
		"EnvironmentFiles": []envFile{{token, true}, {gate, false}},
		"ExecConditionEx":  []command{{Path: "/usr/bin/zkelectd", Argv: []string{"/usr/bin/zkelectd", "admit", socket}, Flags: []string{"privileged"}}},
	}
}

func (m *fakeManager) set(name string, value any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.properties[name] = value
}

// setJobResult sets the result of jobs, or the error with which they are refused.
func (m *fakeManager) setJobResult(result string, refusal *dbus.Error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.result, m.refusal = result, refusal
}

func (m *fakeManager) requestedJobs() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.jobs, ", ")
}

func (m *fakeManager) GetAll(string) (map[string]dbus.Variant, *dbus.Error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[string]dbus.Variant)
	for name, value := range m.properties {
		all[name] = dbus.MakeVariant(value)
	}
	return all, m.refusal
}

// Get returns a property of systemd itself.
func (m *fakeManager) Get(_, name string) (dbus.Variant, *dbus.Error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return dbus.MakeVariant(m.properties[name]), m.refusal
}

func (m *fakeManager) job(what string) (dbus.ObjectPath, *dbus.Error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refusal != nil {
		return "/", m.refusal
	}
	m.jobs = append(m.jobs, what)
	const path = dbus.ObjectPath("/org/freedesktop/systemd1/job/7")
	if m.result != "" {
		m.conn.Emit("/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager.JobRemoved", uint32(7), path, "app.service", m.result)
	}
	return path, nil
}

func (m *fakeManager) StartUnit(name, mode string) (dbus.ObjectPath, *dbus.Error) {
	return m.job("start " + name + " " + mode)
}

func (m *fakeManager) StopUnit(name, mode string) (dbus.ObjectPath, *dbus.Error) {
	return m.job("stop " + name + " " + mode)
}

func withTimeout(t *testing.T, limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// checkError checks that err contains all of these texts.
func checkError(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got error %v, want %q", err, text)
		}
	}
}

func TestInspect(t *testing.T) {
	m := newFakeManager(t)
	u, err := Inspect(withTimeout(t, time.Minute), "app.service", "cgroup.events", token)
	if err != nil {
		t.Fatal(err)
	}
	if u.Group != "/system.slice/system-app.slice/app.service" || u.Permit != permit || u.Socket != socket || !u.Idle() || len(u.BindsTo) != 1 {
		t.Errorf("%+v", u)
	}
	for _, test := range []struct {
		key   string
		value any
		says  string
	}{
		{"LoadState", "not-found", "there is no unit app.service"},
		{"LoadState", "masked", "systemctl unmask app.service"},
		{"LoadState", "bad-setting", "app.service is not loaded: bad-setting"},
		{"Asserts", []assert{}, "it lacks AssertPathExists=" + permit},
		{"Asserts", []assert{{"AssertPathExists", false, true, permit, 0}}, "it lacks AssertPathExists="},
		{"Asserts", []assert{{"AssertPathExists", false, false, "/etc/passwd", 0}}, "it lacks AssertPathExists="},
		{"EnvironmentFiles", []envFile{{token, true}, {gate, true}}, "it lacks EnvironmentFile= with cgroup.events of zkelectd's permit"},
		{"EnvironmentFiles", []envFile{{token, true}}, "it lacks EnvironmentFile= with cgroup.events of zkelectd's permit"},
		{"EnvironmentFiles", []envFile{{gate, false}}, "it lacks EnvironmentFile=-" + token},
		{"EnvironmentFiles", []envFile{{"/run/zkelectd/leader.env", false}, {token, true}, {gate, false}}, "zkelectd's user can write"},
		{"BindsTo", []string{}, "it lacks BindsTo="},
		{"ExecConditionEx", []command{}, "it lacks ExecCondition=+"},
		{"ExecConditionEx", []command{{Argv: []string{"/usr/bin/zkelectd", "admit", socket}}}, "it lacks ExecCondition=+"},
		{"ExecConditionEx", []command{{Argv: []string{"/bin/true"}}, unitProperties()["ExecConditionEx"].([]command)[0]}, "before any other ExecCondition="},
		{"ExecConditionEx", "of another type", "it lacks ExecCondition=+"},
		{"Type", "oneshot", "Type=oneshot"},
		{"RemainAfterExit", true, "RemainAfterExit=yes"},
	} {
		m.set(test.key, test.value)
		_, err := Inspect(withTimeout(t, time.Minute), "app.service", "cgroup.events", token)
		checkError(t, err, "app.service", test.says)
		m.set(test.key, unitProperties()[test.key])
	}
	for _, state := range []string{"active", "activating", "deactivating", "reloading"} {
		m.set("ActiveState", state)
		if u, err := Inspect(withTimeout(t, time.Minute), "app.service", "cgroup.events", token); err != nil || u.Idle() {
			t.Errorf("%s: %+v, %v", state, u, err)
		}
	}
}

func TestCgroupPath(t *testing.T) {
	for slice, want := range map[string]string{
		"system.slice": "/system.slice/a.service", "a-b-c.slice": "/a.slice/a-b.slice/a-b-c.slice/a.service", "-.slice": "/a.service", "": "/a.service",
	} {
		if got := cgroupPath(slice, "a.service"); got != want {
			t.Errorf("%q: %s", slice, got)
		}
	}
}

func TestJobs(t *testing.T) {
	m := newFakeManager(t)
	if err := Start(withTimeout(t, time.Minute), "app.service"); err != nil {
		t.Error(err)
	}
	if err := Stop(withTimeout(t, time.Minute), "app.service"); err != nil {
		t.Error(err)
	}
	if got := m.requestedJobs(); got != "start app.service fail, stop app.service replace" {
		t.Errorf("requested jobs: %s", got)
	}
	for _, result := range []string{"failed", "timeout", "dependency", "canceled", "assert"} {
		m.setJobResult(result, nil)
		checkError(t, Start(withTimeout(t, time.Minute), "app.service"), "app.service did not start", result, "journalctl -u app.service")
	}
	m.setJobResult("", nil)
	checkError(t, Start(withTimeout(t, 100*time.Millisecond), "app.service"), "cannot start app.service: timed out")
	m.setJobResult("done", dbus.NewError("org.freedesktop.DBus.Error.InteractiveAuthorizationRequired", []any{"Interactive authentication required."}))
	checkError(t, Start(withTimeout(t, time.Minute), "app.service"), "cannot start app.service", "polkit", "Interactive authentication required.")
	m.setJobResult("done", dbus.NewError("org.freedesktop.systemd1.TransactionIsDestructive", []any{"zkelectd.service has a stop job"}))
	checkError(t, Start(withTimeout(t, time.Minute), "app.service"), "cannot start app.service", "has a stop job")
}

// A watchdog device that systemd uses itself is found, also with the timeout that the device has.
func TestUsesWatchdog(t *testing.T) {
	m := newFakeManager(t)
	for usec, want := range map[uint64]bool{0: false, 10_000_000: true, math.MaxUint64: true} {
		m.set("RuntimeWatchdogUSec", usec)
		if got, err := UsesWatchdog(withTimeout(t, time.Minute)); err != nil || got != want {
			t.Errorf("%d: %t, %v", usec, got, err)
		}
	}
}

func TestExitStatus(t *testing.T) {
	m := newFakeManager(t)
	for want, p := range map[string][3]any{
		"":                                   {uint64(0), int32(0), int32(0)},
		"exited with status 3 (exit-code)":   {uint64(1), int32(1), int32(3)},
		"was killed by signal 9 (exit-code)": {uint64(1), int32(2), int32(9)},
		"was killed by signal 6 (exit-code)": {uint64(1), int32(3), int32(6)},
	} {
		m.set("ExecMainExitTimestampMonotonic", p[0])
		m.set("ExecMainCode", p[1])
		m.set("ExecMainStatus", p[2])
		m.set("Result", "exit-code")
		if got := ExitStatus(withTimeout(t, time.Minute), "app.service"); got != want {
			t.Errorf("%q instead of %q", got, want)
		}
	}
}

// Without a bus, without systemd on the bus, and with a bus that does not answer, there is an error within the timeout.
func TestNoAnswer(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+filepath.Join(dir, "none"))
	_, err := Inspect(withTimeout(t, time.Minute), "app.service", "cgroup.events", token)
	checkError(t, err, "cannot reach systemd over D-Bus", "dbus.service")
	if status := ExitStatus(withTimeout(t, time.Minute), "app.service"); status != "" {
		t.Errorf("status %q", status)
	}

	newBus(t)
	_, err = Inspect(withTimeout(t, time.Minute), "app.service", "cgroup.events", token)
	checkError(t, err, "cannot read the properties of app.service")

	l, err := net.Listen("unix", filepath.Join(dir, "silent"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+filepath.Join(dir, "silent"))
	done := make(chan error, 1)
	go func() { // ends with the timeout
		done <- Start(withTimeout(t, 200*time.Millisecond), "app.service")
	}()
	select {
	case err := <-done:
		checkError(t, err, "cannot reach systemd over D-Bus", "no answer")
	case <-time.After(20 * time.Second):
		t.Fatal("Start waits forever for a bus that does not answer")
	}
}
