package vmtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/test/testhelper"
)

// machine is a running virtual machine. It ends at its first reset.
type machine struct {
	console string
	process *os.Process
	exited  chan struct{}

	mu     sync.Mutex
	agent  net.Conn
	qemu   net.Conn    // for commands to QEMU
	resets []time.Time // what QEMU reports of the watchdog device
}

// bootTimeout is how long a machine may take to start without hardware support for virtual machines.
const bootTimeout = 4 * time.Minute

// accelerator returns what QEMU can use here: hardware support for virtual machines, or emulation.
func accelerator() string {
	cpu, _ := os.ReadFile("/proc/cpuinfo")
	kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return "tcg"
	}
	kvm.Close()
	flags := strings.Fields(string(cpu))
	if slices.Contains(flags, "vmx") || slices.Contains(flags, "svm") {
		return "kvm"
	}
	return "tcg" // a /dev/kvm without these flags is emulated itself, and takes minutes
}

// host is the address of this host in the machine.
const host = "10.0.2.2"

// boot starts a machine that runs init after its drivers are loaded, and waits for its agent.
func boot(t *testing.T, img image, dir, init string, more ...file) *machine {
	t.Helper()
	agent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	prologue := fmt.Sprintf(`#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t cgroup2 none /sys/fs/cgroup
for m in /lib/*.ko; do insmod $m || echo "cannot load $m"; done
ip link set lo up; ip addr add 10.0.2.15/24 dev eth0; ip link set eth0 up; ip route add default via 10.0.2.2
guest agent %s:%d &
`, host, agent.Addr().(*net.TCPAddr).Port)
	initrd, disk, control := filepath.Join(dir, "initrd"), filepath.Join(dir, "disk"), filepath.Join(dir, "qmp")
	img.write(t, initrd, append(more, file{"init", 0o755, []byte(prologue + init)})...)
	if err := os.WriteFile(disk, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(disk, 64<<20); err != nil {
		t.Fatal(err)
	}
	m := &machine{console: filepath.Join(dir, "console"), exited: make(chan struct{})}
	cmd := exec.Command("qemu-system-x86_64", "-accel", accelerator(), "-cpu", "max", "-smp", "1", "-m", "512", "-nodefaults", "-display", "none", "-no-reboot",
		"-kernel", img.kernel, "-initrd", initrd, "-append", "console=ttyS0 panic=0 loglevel=4", "-serial", "file:"+m.console,
		"-nic", "user,model=virtio-net-pci", "-device", "i6300esb", "-action", "watchdog=reset",
		"-drive", "if=none,id=disk,format=raw,file="+disk+"", "-device", "virtio-blk-pci,drive=disk",
		"-qmp", "unix:"+control+",server=on,wait=off")
	out, err := os.Create(filepath.Join(dir, "qemu"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m.process = cmd.Process
	go func() { // ends with the machine, which the cleanup kills
		cmd.Wait()
		close(m.exited)
	}()
	t.Cleanup(func() {
		m.end()
		if t.Failed() {
			text, _ := os.ReadFile(m.console)
			qemu, _ := os.ReadFile(out.Name())
			t.Logf("QEMU: %s\nthe console of the machine:\n%s", qemu, text)
		}
	})
	m.watch(t, control)
	agent.(*net.TCPListener).SetDeadline(time.Now().Add(bootTimeout))
	if m.agent, err = agent.Accept(); err != nil {
		t.Fatalf("the machine does not start: %v", err)
	}
	t.Cleanup(func() { m.agent.Close() })
	return m
}

// watch notes what QEMU reports about the watchdog device, until the machine ends.
func (m *machine) watch(t *testing.T, control string) {
	t.Helper()
	var conn net.Conn
	testhelper.Eventually(t, time.Minute, "QEMU", func() (err bool) {
		c, dialErr := net.Dial("unix", control)
		conn = c
		return dialErr == nil
	})
	m.qemu = conn
	fmt.Fprintln(conn, `{"execute": "qmp_capabilities"}`)
	go func() { // ends with the machine
		defer conn.Close()
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			var e struct {
				Event     string
				Timestamp struct{ Seconds, Microseconds int64 }
			}
			if json.Unmarshal(lines.Bytes(), &e) == nil && e.Event == "WATCHDOG" {
				m.mu.Lock()
				m.resets = append(m.resets, time.Unix(e.Timestamp.Seconds, e.Timestamp.Microseconds*1000))
				m.mu.Unlock()
			}
		}
	}()
}

// run has the agent carry out a command, and returns when it began.
func (m *machine) run(t *testing.T, command string) time.Time {
	t.Helper()
	fmt.Fprintln(m.agent, command)
	m.agent.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := bufio.NewReader(m.agent).ReadString('\n'); err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return time.Now()
}

// end switches the machine off.
func (m *machine) end() {
	m.process.Kill()
	<-m.exited
}

// suspend stops the machine as a whole.
func (m *machine) suspend() { fmt.Fprintln(m.qemu, `{"execute": "stop"}`) }

// stopDisk makes the disk answer in days: one byte a second.
func (m *machine) stopDisk() {
	fmt.Fprintln(m.qemu, `{"execute": "block_set_io_throttle", "arguments": {"device": "disk", "bps": 0, "bps_rd": 1, "bps_wr": 0, "iops": 0, "iops_rd": 0, "iops_wr": 0}}`)
}

// resetAt returns when the watchdog device has reset the machine.
func (m *machine) resetAt() (time.Time, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.resets) == 0 {
		return time.Time{}, false
	}
	return m.resets[0], true
}
