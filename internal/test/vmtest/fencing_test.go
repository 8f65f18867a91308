package vmtest

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/test/testhelper"
	"zkelectd/internal/test/zkserver"
)

// hypervisor switches machines off for the fence agent that runs in another machine.
type hypervisor struct {
	listener net.Listener
	machines map[string]*machine
	lies     bool // it says that a machine is off, and lets it run

	mu    sync.Mutex
	ended map[string]time.Time // when it was asked to switch a machine off first
}

func newHypervisor(t *testing.T, lies bool) *hypervisor {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hypervisor{listener: l, machines: make(map[string]*machine), lies: lies, ended: make(map[string]time.Time)}
	var serving sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	h.mu.Lock() // until all machines are known
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			h.serve(conn)
		}
	})
	return h
}

func (h *hypervisor) addr() string {
	return fmt.Sprintf("%s:%d", host, h.listener.Addr().(*net.TCPAddr).Port)
}

// serve carries out one request: an action and a machine's name.
func (h *hypervisor) serve(conn net.Conn) {
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	line, err := bufio.NewReader(conn).ReadString('\n')
	action, name, _ := strings.Cut(strings.TrimSpace(line), " ")
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.machines[name]
	if err != nil || m == nil {
		return
	}
	if action == "off" {
		if h.ended[name].IsZero() {
			h.ended[name] = time.Now()
		}
		if !h.lies {
			m.end()
		}
	}
	fmt.Fprintln(conn, h.state(name))
}

// state returns whether a machine is on or off.
func (h *hypervisor) state(name string) string {
	if h.lies && !h.ended[name].IsZero() {
		return "off"
	}
	select {
	case <-h.machines[name].exited:
		return "off"
	default:
		return "on"
	}
}

// endedAt returns when a machine was switched off.
func (h *hypervisor) endedAt(name string) (time.Time, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, ended := h.ended[name]
	return at, ended
}

// fencing is a way in which a leader's host is lost while its work goes on, or could go on later.
type fencing struct {
	name string
	lose func(t *testing.T, m *machine)
	// beats is set if the work goes on until the machine ends.
	beats bool
	// lies is set if nothing ends the machine.
	lies bool
}

func stopEveryone(t *testing.T, m *machine) { m.run(t, "kill -STOP "+everyone) }

var fencings = []fencing{
	{name: "guard, keeper and daemon stopped", lose: stopEveryone, beats: true},
	{name: "the machine is suspended", lose: func(_ *testing.T, m *machine) { m.suspend() }},
	{name: "the agent lies", lose: stopEveryone, lies: true},
}

// TestRealFencing runs a leader and a standby in a virtual machine each. The standby switches the lost leader's machine off, and starts
// its work without a wait. The ledger shows no overlap, unless the agent lies.
func TestRealFencing(t *testing.T) {
	if *packages == "" {
		return
	}
	programs := t.TempDir()
	buildPrograms(t, programs)
	img := newImage(t, *packages, programs)
	for _, f := range fencings {
		for i := range *times {
			t.Run(fmt.Sprintf("%s/%d", f.name, i+1), func(t *testing.T) { f.run(t, img) })
		}
	}
}

func (f fencing) run(t *testing.T, img image) {
	server := zkserver.ForTest(t, zkserver.Options{Tick: *session / 5})
	book, h := newLedger(t), newHypervisor(t, f.lies)
	for _, name := range []string{"machine", "standby"} {
		dir := testhelper.PublicDir(t)
		config := f.config(name, server.Addr(), h.addr(), book.port())
		h.machines[name] = boot(t, img, dir, scenario{user: "root"}.init(), append(accounts(),
			file{"etc/zkelectd.yaml", 0o644, []byte(config)}, file{"bin/fence_vm", 0o755, []byte("#!/bin/sh\nexec guest fence\n")})...)
		testhelper.Eventually(t, bootTimeout, "the machine to lead", func() bool { return book.begun("machine") })
	}
	h.mu.Unlock()
	m := h.machines["machine"]
	testhelper.Eventually(t, bootTimeout, "the standby to join", func() bool { return joined(t, h.machines["standby"]) })
	f.lose(t, m)
	lost := time.Now()
	if f.lies {
		checkOverlap(t, m, book)
		return
	}
	testhelper.Eventually(t, *session*6, "the successor", func() bool { return book.begun("standby") })
	off, fenced := h.endedAt("machine")
	if !fenced {
		t.Fatal("the successor has not fenced the machine")
	}
	_, last := book.span("machine")
	successor, _ := book.span("standby")
	b, err := cluster.NewBudget(*session, 0, cluster.DefaultStop(*session, 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("lost; fenced after %s, last beat after %s, successor after %s, which is %s after it was fenced (a lease wait takes %s)", round(off.Sub(lost)),
		round(last.Sub(lost)), round(successor.Sub(lost)), round(successor.Sub(off)), b.LeaseWait.Round(10*time.Millisecond))
	if !successor.After(last) {
		t.Errorf("overlap: the successor began %s before the last beat", last.Sub(successor))
	}
	if f.beats && off.Sub(last) > time.Second {
		t.Errorf("the work ended %s before the machine: this run proves nothing", off.Sub(last))
	}
	if successor.Sub(off) > b.LeaseWait {
		t.Errorf("the successor began %s after the machine was off: it has waited", successor.Sub(off))
	}
}

// joined reports whether a machine's daemon has registered.
func joined(t *testing.T, m *machine) bool {
	t.Helper()
	text, err := os.ReadFile(m.console)
	return err == nil && strings.Contains(string(text), "registered")
}

// config returns the configuration of one of the two machines.
func (f fencing) config(name, zookeeper, hypervisor string, ledger int) string {
	priority := 100
	if name == "machine" {
		priority = 200
	}
	_, port, _ := net.SplitHostPort(zookeeper)
	return fmt.Sprintf(`node: {id: %s, priority: %d}
zookeeper: {servers: ["%s:%s"], root: /cluster, session_timeout: %s, min_session_timeout: %[5]s}
watchdog_device: {mode: "off"}
fencing:
  levels:
    agent: fence_vm
    options: {ip: "%s"}
    nodes: {machine: {plug: machine}, standby: {plug: standby}}
  timeout: 30s
  skip_wait: true
child:
  command: ["guest", "beat", "%s:%d", "%[1]s"]
  containment: cgroup
  stop_timeout: 100ms
`, name, priority, host, port, *session, hypervisor, host, ledger)
}
