package vmtest

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/test/faultproxy"
	"zkelectd/internal/test/testhelper"
	"zkelectd/internal/test/zkserver"
)

var (
	packages = flag.String("vmtest.real", "", "run the tests with the kernel in this directory, which scripts/install-vm.sh prints")
	times    = flag.Int("vmtest.n", 3, "how often to run each scenario")
	session  = flag.Duration("vmtest.session", 10*time.Second, "the session timeout")
)

// scenario is a way in which the work of a leader outlives its lease unless something resets the host.
type scenario struct {
	name string
	// user runs zkelectd, containment holds the work.
	user, containment string
	// command is the work; %s is the address of the ledger.
	command string
	// fail is what happens in the machine, and cut whether the machine is cut off from ZooKeeper at that moment.
	fail string
	cut  bool
	// diskHangs stops the disk before.
	diskHangs bool
	// mode is watchdog_device.mode; required if it is empty. Without the device nothing resets the machine.
	mode string
	// beats is set if the work goes on to write into the ledger until the reset.
	beats bool
}

// The processes of zkelectd in the machine, without and with the keeper.
const (
	guards   = "$(pidof zkelectd | tr ' ' '\\n' | while read p; do grep -qz '^keeper$' /proc/$p/cmdline || echo $p; done)"
	everyone = "$(pidof zkelectd)"
)

const beatCommand = `["guest", "beat", "%s", "machine"]`

var scenarios = []scenario{
	{name: "guard, keeper and daemon stopped", user: "root", containment: "cgroup", command: beatCommand, fail: "kill -STOP " + everyone, beats: true},
	{name: "the same without a device", user: "root", containment: "cgroup", command: beatCommand, fail: "kill -STOP " + everyone, mode: "off"},
	{name: "guard and daemon stopped", user: "root", containment: "cgroup", command: beatCommand, fail: "kill -STOP " + guards},
	{name: "kernel hung", user: "root", containment: "cgroup", command: beatCommand, fail: "echo c >/proc/sysrq-trigger"},
	{
		name: "work in uninterruptible sleep", user: "root", containment: "cgroup", cut: true, diskHangs: true,
		command: `["sh", "-c", "guest hang /dev/vda /tmp/hang & exec guest beat %s machine"]`, fail: "touch /tmp/hang; sleep 1; ps -o stat,args | grep '[g]uest hang' >/dev/console",
	},
	{
		name: "no permission to kill", user: "zkelectd", containment: "keeper", cut: true, beats: true,
		command: `["guest-root", "become-root", "%s", "machine", "/tmp/become-root"]`, fail: "touch /tmp/become-root; sleep 1",
	},
}

// TestReal runs each scenario: a leader in a virtual machine, whose host stands still, and a standby outside. The device resets the
// machine before any successor may start its work, and the ledger shows no overlap.
func TestReal(t *testing.T) {
	if *packages == "" {
		return
	}
	programs := t.TempDir()
	buildPrograms(t, programs)
	img := newImage(t, *packages, programs)
	t.Logf("QEMU with %s, %s, session timeout %s", accelerator(), filepath.Base(img.kernel), *session)
	for _, s := range scenarios {
		for i := range *times {
			t.Run(fmt.Sprintf("%s/%d", s.name, i+1), func(t *testing.T) { s.run(t, img, programs) })
		}
	}
}

func (s scenario) run(t *testing.T, img image, programs string) {
	b, err := cluster.NewBudget(*session, 0, cluster.DefaultStop(*session, 0))
	if err != nil {
		t.Fatal(err)
	}
	server := zkserver.ForTest(t, zkserver.Options{Tick: *session / 5})
	proxy := faultproxy.ForTest(t, server.Addr())
	book := newLedger(t)
	dir := testhelper.PublicDir(t)

	m := boot(t, img, dir, s.init(), append(accounts(), file{"etc/zkelectd.yaml", 0o644, []byte(s.config(proxy.Port(), book.port()))})...)
	testhelper.Eventually(t, bootTimeout, "the machine to lead", func() bool { return book.begun("machine") })
	s.startStandby(t, dir, programs, server.Addr(), book.port())
	if at, reset := m.resetAt(); reset {
		t.Fatalf("the machine was reset at %s, before anything happened", at)
	}

	if s.diskHangs {
		m.stopDisk()
	}
	stood := m.run(t, s.fail)
	if s.cut {
		m.run(t, "true") // the agent answers before it carries out a command: the one before has ended
		if console, err := os.ReadFile(m.console); s.diskHangs && (err != nil || !sleeps.Match(console)) {
			t.Fatalf("no process of the work is in uninterruptible sleep: %v", err)
		}
		proxy.SetMode(faultproxy.BlackHole)
		stood = time.Now()
	}
	if s.mode == "off" {
		checkOverlap(t, m, book)
		return
	}
	testhelper.Eventually(t, *session*3, "the reset of the machine", func() bool { _, reset := m.resetAt(); return reset })
	reset, _ := m.resetAt()
	<-m.exited
	testhelper.Eventually(t, *session*6, "the successor", func() bool { return book.begun("standby") })
	_, last := book.span("machine")
	successor, _ := book.span("standby")
	t.Logf("stood still; reset after %s (the lease and K: %s), last beat after %s, successor after %s", round(reset.Sub(stood)), b.Lease+b.Kill, round(last.Sub(stood)),
		round(successor.Sub(stood)))
	// The last lease was sent before the host stood still. The machine's clock is this host's.
	if after := reset.Sub(stood); after > b.Lease+b.Kill {
		t.Errorf("the machine was reset %s after it stood still: a lease and K are %s", after, b.Lease+b.Kill)
	}
	if last.After(reset.Add(50 * time.Millisecond)) {
		t.Errorf("a beat arrived %s after the reset", last.Sub(reset))
	}
	if !successor.After(last) {
		t.Errorf("overlap: the successor began %s before the last beat", last.Sub(successor))
	}
	if s.beats && reset.Sub(last) > time.Second {
		t.Errorf("the work ended %s before the reset: this run proves nothing", reset.Sub(last))
	}
}

// checkOverlap fails unless two leaders work at once, as they do without the device: the ledger can show it.
func checkOverlap(t *testing.T, m *machine, book *ledger) {
	t.Helper()
	testhelper.Eventually(t, *session*6, "two leaders", func() bool {
		successor, _ := book.span("standby")
		_, last := book.span("machine")
		return !successor.IsZero() && last.Sub(successor) > time.Second
	})
	if _, reset := m.resetAt(); reset {
		t.Error("the machine was reset although it does not use the device")
	}
}

// sleeps matches a process in uninterruptible sleep.
var sleeps = regexp.MustCompile(`(?m)^D.*guest hang`)

func round(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }

// accounts returns the files with the users of a machine.
func accounts() []file {
	return []file{
		{"etc/passwd", 0o644, []byte("root:x:0:0::/:/bin/sh\nzkelectd:x:1000:1000::/tmp:/bin/sh\n")},
		{"etc/group", 0o644, []byte("root:x:0:\nzkelectd:x:1000:\n")},
	}
}

// init returns the script that runs zkelectd.
func (s scenario) init() string {
	return fmt.Sprintf(`mkdir -p /run/zkelectd
chown -R zkelectd:zkelectd /run/zkelectd /dev/watchdog
export RUNTIME_DIRECTORY=/run/zkelectd
su -s /bin/sh %s -c 'exec zkelectd run --create --config /etc/zkelectd.yaml'
echo "zkelectd has ended"
sleep 1000000
`, s.user)
}

// config returns the configuration of the machine, which is better than the standby.
func (s scenario) config(zookeeper, ledger int) string {
	return fmt.Sprintf(`node: {id: machine, priority: 200}
zookeeper: {servers: ["%s:%d"], root: /cluster, session_timeout: %s, min_session_timeout: %[3]s}
watchdog_device: {mode: %s}
child:
  command: %s
  containment: %s
  stop_timeout: 100ms
`, host, zookeeper, *session, cmp.Or(s.mode, "required"), fmt.Sprintf(s.command, fmt.Sprintf("%s:%d", host, ledger)), s.containment)
}

// startStandby starts the daemon that takes over, on this host.
func (s scenario) startStandby(t *testing.T, dir, programs, zookeeper string, ledger int) {
	t.Helper()
	config := filepath.Join(dir, "standby.yaml")
	text := fmt.Sprintf(`node: {id: standby, priority: 100}
zookeeper: {servers: ["%s"], root: /cluster, session_timeout: %s, min_session_timeout: %[2]s, session_file: %s}
child: {command: ["%s", "beat", "127.0.0.1:%d", "standby"], stop_timeout: 100ms}
`, zookeeper, *session, filepath.Join(dir, "session"), filepath.Join(programs, "guest"), ledger)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "standby.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(programs, "zkelectd"), "run", "--create", "--config", config)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("the standby:\n%s", text)
		}
	})
}
