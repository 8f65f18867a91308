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

	"zkelectd/internal/boottime"
)

// manager is a service manager as systemd is one: a datagram socket.
type fakeServiceManager struct {
	t      *testing.T
	socket *net.UnixConn
}

func newFakeServiceManager(t *testing.T) (m *fakeServiceManager, variable string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "manager")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	name := filepath.Join(dir, "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	return &fakeServiceManager{t, socket}, "NOTIFY_SOCKET=" + name
}

// next is the next message, or "" if none comes within limit.
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

// expect wants messages in their order.
func (m *fakeServiceManager) expect(want ...string) {
	m.t.Helper()
	for _, w := range want {
		if got := m.next(testTimeout); got != w {
			m.t.Errorf("the service manager hears %q, not %q", got, w)
		}
	}
}

// silent wants no message. For what was sent before, the daemon's confirmed lease is the end mark.
func (m *fakeServiceManager) expectNothing(d *remoteDaemon) {
	m.t.Helper()
	at := call[time.Duration](d, "SetLease", time.Hour)
	eventually(m.t, "the confirmation", func() bool { return call[time.Duration](d, "Confirmed", 0) == at })
	if got := m.next(time.Millisecond); got != "" {
		m.t.Errorf("the service manager hears %q", got)
	}
}

func TestTheServiceManagerIsTold(t *testing.T) {
	t.Parallel()
	m, socket := newFakeServiceManager(t)
	fx := startGuard(t, socket)
	d := fx.nextDaemon()
	call[int](d, "Notify", "READY=1\nSTATUS=standby")
	m.expect("READY=1\nSTATUS=standby")
	call[int](d, "Heartbeat", time.Hour)
	m.expectNothing(d) // without a watchdog
	call[int](d, "Notify", "STATUS=leading")
	m.expect("STATUS=leading")
	syscall.Kill(d.pid, syscall.SIGKILL)
	m.expect("STATUS=The daemon was killed by signal 9 (killed); it will be restarted")
	d = fx.nextDaemon()
	fx.signalGuard(syscall.SIGTERM)
	m.expect("STOPPING=1")
	// The start that was under way does not take the stop back.
	call[int](d, "Notify", "READY=1\nSTATUS=stopping")
	call[int](d, "Notify", "READY=1")
	m.expect("STATUS=stopping")
	m.expectNothing(d)
	fx.signalGuard(syscall.SIGTERM)
	m.expectNothing(d) // it is said once
	d.callNoWait("Exit", 0)
	fx.guardExitStatus()
	if got := m.next(time.Millisecond); got != "" {
		t.Errorf("at the end: %q", got)
	}
}

// A daemon that ends by itself ends the service.
func TestTheServiceManagerIsToldOfTheEnd(t *testing.T) {
	t.Parallel()
	m, socket := newFakeServiceManager(t)
	fx := startGuard(t, socket)
	fx.nextDaemon().callNoWait("Exit", 1)
	m.expect("STOPPING=1")
	fx.guardExitStatus()
}

func TestTheWatchdogIsFedByTheDaemonsLife(t *testing.T) {
	t.Parallel()
	const watchdog = 800 * time.Millisecond
	m, socket := newFakeServiceManager(t)
	fx := startGuard(t, socket, fmt.Sprintf("WATCHDOG_USEC=%d", watchdog.Microseconds()))
	d := fx.nextDaemon()
	if every := call[ServiceInfo](d, "Service", 0).WatchdogInterval; every != watchdog/4 {
		t.Errorf("the daemon is to beat every %s", every)
	}
	m.expectNothing(d) // the guard alone is no life
	for _, sign := range []string{"Heartbeat", "ReportAlive"} {
		sent := boottime.Now()
		for range 3 { // no more than needed
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
		eventually(t, "its time", func() bool { return boottime.Now() > sent+2*watchdog/4 })
		for m.next(time.Millisecond) != "" {
		}
	}
	syscall.Kill(d.pid, syscall.SIGSTOP)
	if got := m.next(2 * watchdog); got != "" {
		t.Errorf("of a daemon that stands still: %q", got)
	}
	syscall.Kill(d.pid, syscall.SIGCONT)
}

// The manager's variables are the guard's alone: what else would speak in its name?
func TestNobodyElseSpeaksToTheServiceManager(t *testing.T) {
	t.Parallel()
	_, socket := newFakeServiceManager(t)
	fx := startGuard(t, socket, "WATCHDOG_USEC=1000000", "WATCHDOG_PID=1") // of another process
	s := call[ServiceInfo](fx.nextDaemon(), "Service", 0)
	for _, kv := range s.Env {
		if strings.HasPrefix(kv, "NOTIFY_SOCKET") || strings.HasPrefix(kv, "WATCHDOG") {
			t.Errorf("the daemon has %s", kv)
		}
	}
	if s.WatchdogInterval != 0 {
		t.Errorf("it beats every %s for a watchdog that is not ours", s.WatchdogInterval)
	}
}

// What the manager sends along, and whether it is there at all, must not keep the guard from its work.
func TestTheServiceManagerIsOdd(t *testing.T) {
	t.Parallel()
	_, socket := newFakeServiceManager(t)
	for _, env := range [][]string{
		{"NOTIFY_SOCKET=/nowhere/notify"}, {"NOTIFY_SOCKET=@zkelectd-nobody"}, {"NOTIFY_SOCKET=" + strings.Repeat("x", 200)},
		{socket, "WATCHDOG_USEC=often"}, {socket, "WATCHDOG_USEC=-5"}, {"WATCHDOG_USEC=1000000"},
	} {
		fx := startGuard(t, env...)
		d := fx.nextDaemon()
		call[int](d, "Notify", "READY=1")
		call[int](d, "ReportAlive", 0)
		deadline, pids := d.startWork(200 * time.Millisecond)
		checkNotLate(t, fx.waitDead(pids...), deadline)
		if odd := slices.ContainsFunc(env, func(kv string) bool { return kv == "WATCHDOG_USEC=often" || kv == "WATCHDOG_USEC=-5" }); odd {
			if log := read(filepath.Join(fx.dir, "log")); !strings.Contains(log, "cannot feed the service manager's watchdog") {
				t.Errorf("%q: log: %q", env, log)
			}
		}
	}
}

// A manager that does not read holds nothing up, least of all the end of the work; it hears the newest once it reads.
func TestTheServiceManagerDoesNotRead(t *testing.T) {
	t.Parallel()
	m, socket := newFakeServiceManager(t)
	fx := startGuard(t, socket, "WATCHDOG_USEC=4000")
	d := fx.nextDaemon()
	const sent = 2000 // more than any kernel keeps
	for i := range sent {
		call[int](d, "Notify", fmt.Sprintf("STATUS=%d", i))
	}
	deadline, pids := d.startWork(200 * time.Millisecond)
	checkNotLate(t, fx.waitDead(pids...), deadline)
	last := fmt.Sprintf("STATUS=%d", sent-1)
	heard := 0
	eventually(t, "the last message", func() bool {
		call[int](d, "Heartbeat", time.Hour) // the next sign of life passes on what was kept
		for {
			switch got := m.next(time.Millisecond); got {
			case "":
				return false
			case last:
				return true
			default:
				heard++
			}
		}
	})
	if heard < maxPending || heard >= sent-1 {
		t.Errorf("%d messages before the last", heard)
	}
}
