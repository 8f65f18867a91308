package cli

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/test/testhelper"
)

// manager is a service manager with one service. Like systemd, it accepts messages from the main process only.
type manager struct {
	f        *fleet
	id       string
	socket   *net.UnixConn
	received []string
}

// service starts a daemon as a service with a watchdog.
func (f *fleet) service(id string, watchdog time.Duration) *manager {
	f.t.Helper()
	dir := testhelper.PublicDir(f.t)
	name := filepath.Join(dir, "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { socket.Close() })
	raw, err := socket.SyscallConn()
	if err != nil {
		f.t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_PASSCRED, 1) })
	if err != nil {
		f.t.Fatal(err)
	}
	f.startWith([]string{"NOTIFY_SOCKET=" + name, fmt.Sprintf("WATCHDOG_USEC=%d", watchdog.Microseconds())}, id)
	return &manager{f: f, id: id, socket: socket}
}

// next returns the next message, "" if none comes within limit.
func (m *manager) next(limit time.Duration) string {
	m.f.t.Helper()
	m.socket.SetReadDeadline(time.Now().Add(limit))
	data, control := make([]byte, 4096), make([]byte, 128)
	n, nc, _, _, err := m.socket.ReadMsgUnix(data, control)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return ""
	}
	if err != nil {
		m.f.t.Fatal(err)
	}
	messages, err := syscall.ParseSocketControlMessage(control[:nc])
	if err != nil || len(messages) != 1 {
		m.f.t.Fatalf("%d control messages, %v", len(messages), err)
	}
	cred, err := syscall.ParseUnixCredentials(&messages[0])
	if err != nil {
		m.f.t.Fatal(err)
	}
	if main := m.f.daemons[m.id].Process.Pid; int(cred.Pid) != main {
		m.f.t.Errorf("%q is of process %d, not of the main process %d", data[:n], cred.Pid, main)
	}
	text := string(data[:n])
	m.received = append(m.received, text)
	return text
}

// expects waits for a message whose lines have these prefixes, one each.
func (m *manager) expects(lines ...string) string {
	m.f.t.Helper()
	var text string
	m.f.eventually(fmt.Sprintf("%s sends the service manager %q", m.id, lines), func() bool {
		text = m.next(10 * time.Millisecond)
		got := strings.Split(text, "\n")
		return len(got) == len(lines) && !slices.ContainsFunc(lines, func(l string) bool {
			return !slices.ContainsFunc(got, func(g string) bool { return strings.HasPrefix(g, l) })
		})
	}, func() string { return fmt.Sprintf("received: %q", m.received) })
	return text
}

func TestService(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.configure("a", "dc1", 100, "election: {exclusion: 1s}\n")
	a := f.service("a", 2*time.Second)
	a.expects("READY=1", "STATUS=standby")
	for _, early := range a.received[:len(a.received)-1] {
		if strings.Contains(early, "READY") {
			t.Errorf("ready too early: %q", a.received)
		}
	}
	a.expects("STATUS=leading, elector, term ")
	f.configure("b", "dc1", 90, "election: {exclusion: 1s}\n")
	b := f.service("b", 2*time.Second)
	b.expects("STATUS=standby; a (site dc1) is elected in term ")
	a.expects("WATCHDOG=1")
	b.expects("WATCHDOG=1")

	// A reload that moves the leader, and one that is refused.
	f.configure("b", "dc1", 200, "election: {exclusion: 1s}\n")
	f.daemons["b"].Signal(syscall.SIGHUP)
	b.expects("RELOADING=1", "MONOTONIC_USEC=")
	b.expects("READY=1", "STATUS=")
	b.expects("STATUS=leading, term ")
	a.expects("STATUS=standby, elector; b (site dc1) is elected in term ")
	put(t, f.file("b"), "node: {prio: 7}\n")
	f.daemons["b"].Signal(syscall.SIGHUP)
	b.expects("RELOADING=1", "MONOTONIC_USEC=")
	if said := b.expects("READY=1", "STATUS=leading, term "); !strings.HasSuffix(said, "; the last reload was refused (see the log)") {
		t.Errorf("status to the service manager: got %q", said)
	}

	// Neither the daemon nor the child can send messages for the service.
	for _, pid := range []int{f.child("b"), f.daemon("b")} {
		if env := read(fmt.Sprintf("/proc/%d/environ", pid)); strings.Contains(env, "NOTIFY_SOCKET") || strings.Contains(env, "WATCHDOG_PID") {
			t.Errorf("process %d has %q", pid, env)
		}
	}
	if env := read(fmt.Sprintf("/proc/%d/environ", f.child("b"))); env == "" || strings.Contains(env, "WATCHDOG") {
		t.Errorf("the child has %q", env)
	}

	f.configure("b", "dc1", 200, "election: {exclusion: 1s}\n")
	syscall.Kill(f.daemon("b"), syscall.SIGKILL)
	b.expects("STATUS=The daemon was killed by signal 9")
	b.expects("STATUS=waiting for ZooKeeper at ") // from the next daemon
	for _, m := range []*manager{a, b} {
		f.daemons[m.id].Signal(syscall.SIGTERM)
		m.expects("STOPPING=1")
		if code := f.exit(m.id); m.id == "a" && code != 0 {
			t.Errorf("exit status %d", code)
		}
	}
	f.checkInvariants()
}

// While no server answers, the service is neither ready nor dead.
func TestServiceWithoutAServer(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.servers = []string{"127.0.0.1:" + closedPort(t)}
	f.configure("a", "dc1", 100, "")
	a := f.service("a", 400*time.Millisecond)
	a.expects("STATUS=waiting for ZooKeeper at " + f.servers[0])
	for range 3 {
		a.expects("WATCHDOG=1")
	}
	f.daemons["a"].Signal(syscall.SIGTERM)
	a.expects("STOPPING=1")
	if code := f.exit("a"); code != 0 {
		t.Errorf("exit status %d", code)
	}
	if slices.ContainsFunc(a.received, func(s string) bool { return strings.Contains(s, "READY=1") }) {
		t.Errorf("received %q", a.received)
	}
}

// A request to reload that arrives before the guard runs does not end zkelectd.
func TestReloadWhileTheConfigurationIsRead(t *testing.T) {
	t.Parallel()
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	f := newFleet(t)
	cmd := exec.Command("zkelectd", "run", "--config", "/dev/stdin", "--no-child")
	cmd.Stdin = in
	p := f.startCommand("n1", cmd)
	fmt.Fprint(out, "node: {id: n1")
	f.eventually("it reads", func() bool {
		left, err := unix.IoctlGetInt(int(out.Fd()), unix.TIOCINQ)
		return err == nil && left == 0
	})
	p.Signal(syscall.SIGHUP)
	fmt.Fprintf(out, "}\nzookeeper: {servers: [%s], root: %s}\n", f.servers[0], f.paths.Root)
	out.Close()
	f.until("it leads", leads("n1"))
}
