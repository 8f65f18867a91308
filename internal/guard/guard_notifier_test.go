package guard

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/test/testhelper"
)

// fakeServiceManager is a datagram socket like that of systemd.
type fakeServiceManager struct {
	t      *testing.T
	socket *net.UnixConn
}

func newFakeServiceManager(t *testing.T) (m *fakeServiceManager, variable string) {
	t.Helper()
	dir := testhelper.PublicDir(t)
	name := filepath.Join(dir, "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	return &fakeServiceManager{t, socket}, "NOTIFY_SOCKET=" + name
}

// next returns the next message; empty if none arrives within limit.
func (m *fakeServiceManager) next(limit time.Duration) string {
	m.t.Helper()
	m.socket.SetReadDeadline(time.Now().Add(limit))
	buf := make([]byte, 4096)
	n, err := m.socket.Read(buf)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return ""
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return string(buf[:n])
}

// expect checks the next messages.
func (m *fakeServiceManager) expect(want ...string) {
	m.t.Helper()
	for _, w := range want {
		if got := m.next(testTimeout); got != w {
			m.t.Errorf("the service manager got %q, want %q", got, w)
		}
	}
}

// expectNothing checks that there is no message. It first waits until the guard has confirmed a lease, and so has handled all
// earlier messages of the daemon.
func (m *fakeServiceManager) expectNothing(d *remoteDaemon) {
	m.t.Helper()
	at := call[time.Duration](d, "Extend", time.Hour)
	eventually(m.t, "the confirmation", func() bool { return call[time.Duration](d, "Confirmed", 0) == at })
	if got := m.next(time.Millisecond); got != "" {
		m.t.Errorf("the service manager got %q", got)
	}
}

func TestServiceManagerIsNotified(t *testing.T) {
	t.Parallel()
	m, socket := newFakeServiceManager(t)
	fx, d := startDaemon(t, socket)
	call[int](d, "Notify", "READY=1\nSTATUS=standby")
	m.expect("READY=1\nSTATUS=standby")
	call[int](d, "Heartbeat", time.Hour)
	m.expectNothing(d) // there is no watchdog
	call[int](d, "Notify", "STATUS=leading")
	m.expect("STATUS=leading")
	syscall.Kill(d.pid, syscall.SIGKILL)
	m.expect("STATUS=The daemon was killed by signal 9 (killed); it will be restarted")
	d = fx.nextDaemon()
	fx.signalGuard(syscall.SIGTERM)
	m.expect("STOPPING=1")
	// A daemon that becomes ready now does not revoke the stop.
	call[int](d, "Notify", "READY=1\nSTATUS=stopping")
	call[int](d, "Notify", "READY=1")
	m.expect("STATUS=stopping")
	m.expectNothing(d)
	fx.signalGuard(syscall.SIGTERM)
	m.expectNothing(d) // STOPPING=1 is sent once
	d.callNoWait("Exit", 0)
	fx.guardExitStatus()
	if got := m.next(time.Millisecond); got != "" {
		t.Errorf("at the end: %q", got)
	}
}

// The watchdog is fed only by signs of life of the daemon.
func TestDaemonFeedsWatchdog(t *testing.T) {
	t.Parallel()
	const watchdog = 800 * time.Millisecond
	m, socket := newFakeServiceManager(t)
	_, d := startDaemon(t, socket, fmt.Sprintf("WATCHDOG_USEC=%d", watchdog.Microseconds()))
	if every := call[ServiceInfo](d, "Service", 0).WatchdogInterval; every != watchdog/4 {
		t.Errorf("watchdog interval %s", every)
	}
	connected := boottime.Now()
	m.expect("WATCHDOG=1")
	eventually(t, "the time of the next message", func() bool { return boottime.Now() > connected+2*watchdog/4 })
	m.expectNothing(d) // the guard alone does not feed it
	for _, sign := range []string{"Heartbeat", "ReportAlive"} {
		sent := boottime.Now()
		for range 3 { // sends only one message
			if sign == "Heartbeat" {
				call[int](d, sign, time.Hour)
			} else {
				call[int](d, sign, 0)
			}
		}
		m.expect("WATCHDOG=1")
		if boottime.Now()-sent < watchdog/4 {
			m.expectNothing(d)
		}
		eventually(t, "the time of the next message", func() bool { return boottime.Now() > sent+2*watchdog/4 })
		for m.next(time.Millisecond) != "" {
		}
	}
	syscall.Kill(d.pid, syscall.SIGSTOP)
	if got := m.next(2 * watchdog); got != "" {
		t.Errorf("got %q although the daemon is stopped", got)
	}
	syscall.Kill(d.pid, syscall.SIGCONT)
}

// No other process gets the manager's variables, as it could send messages in the guard's name.
func TestServiceManagerVariablesAreRemoved(t *testing.T) {
	t.Parallel()
	_, socket := newFakeServiceManager(t)
	fx := startGuard(t, socket, "WATCHDOG_USEC=1000000", "WATCHDOG_PID=1") // of another process
	s := call[ServiceInfo](fx.nextDaemon(), "Service", 0)
	for _, kv := range s.Env {
		if strings.HasPrefix(kv, "NOTIFY_SOCKET") || strings.HasPrefix(kv, "WATCHDOG") {
			t.Errorf("the daemon's environment contains %s", kv)
		}
	}
	if s.WatchdogInterval != 0 {
		t.Errorf("watchdog interval %s for the watchdog of another process", s.WatchdogInterval)
	}
}

// Wrong settings of a service manager, or a missing manager, must not keep the guard from its work.
func TestUnusableServiceManager(t *testing.T) {
	t.Parallel()
	_, socket := newFakeServiceManager(t)
	for _, env := range [][]string{
		{"NOTIFY_SOCKET=/nowhere/notify"}, {"NOTIFY_SOCKET=@zkelectd-nobody"}, {"NOTIFY_SOCKET=" + strings.Repeat("x", 200)},
		{socket, "WATCHDOG_USEC=often"}, {socket, "WATCHDOG_USEC=-5"}, {"WATCHDOG_USEC=1000000"},
	} {
		fx, d := startDaemon(t, env...)
		call[int](d, "Notify", "READY=1")
		call[int](d, "ReportAlive", 0)
		deadline, pids := d.startWork(200 * time.Millisecond)
		checkNotLate(t, fx.waitDead(pids...), deadline)
		if invalid := slices.ContainsFunc(env, func(kv string) bool { return kv == "WATCHDOG_USEC=often" || kv == "WATCHDOG_USEC=-5" }); invalid {
			if log := read(filepath.Join(fx.dir, "log")); !strings.Contains(log, "cannot feed the service manager's watchdog") {
				t.Errorf("%q: log: %q", env, log)
			}
		}
	}
}

// A manager that does not read blocks nothing, least of all a kill. When it reads, it gets the latest messages.
func TestServiceManagerDoesNotRead(t *testing.T) {
	t.Parallel()
	m, socket := newFakeServiceManager(t)
	fx, d := startDaemon(t, socket, "WATCHDOG_USEC=4000")
	const sent = 2000 // more than any socket buffer holds
	for i := range sent {
		call[int](d, "Notify", fmt.Sprintf("STATUS=%d", i))
	}
	deadline, pids := d.startWork(200 * time.Millisecond)
	checkNotLate(t, fx.waitDead(pids...), deadline)
	last := fmt.Sprintf("STATUS=%d", sent-1)
	received := 0
	eventually(t, "the last message", func() bool {
		call[int](d, "Heartbeat", time.Hour) // also sends pending messages
		for {
			switch got := m.next(time.Millisecond); got {
			case "":
				return false
			case last:
				return true
			default:
				received++
			}
		}
	})
	if received < maxPending || received >= sent-1 {
		t.Errorf("%d messages before the last", received)
	}
}
