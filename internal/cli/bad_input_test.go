package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/sys/procinfo"
)

// If another program has the port, the daemon exits and names the setting and the address. Nothing of it stays in the group.
func TestAPortInUseEndsTheDaemonWithAReason(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	f.configure("a", "dc1", 100, fmt.Sprintf("http: {listen: '%s'}\n", taken.Addr()))
	began := boottime.Now()
	out, err := f.run("run", "--config", f.file("a"))
	if err == nil || !strings.Contains(out, "http.listen") || !strings.Contains(out, taken.Addr().String()) || !strings.Contains(out, "address already in use") {
		t.Errorf("%v: %s", err, out)
	}
	if took := boottime.Now() - began; took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
	if strings.Contains(out, "child started") || strings.Contains(out, "panic") {
		t.Errorf("it has led: %s", out)
	}
	f.configure("a", "dc1", 100, "")
	f.start("a")
	f.until("it leads with another", leads("a"))
	f.checkInvariants()
}

// standsStill reports whether all threads of a process are stopped, which may take longer than to send the signal.
func standsStill(pid int) bool {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, thread := range threads {
		tid, _ := strconv.Atoi(thread.Name())
		if s, err := procinfo.ReadStat(tid); err != nil || s.State != 'T' {
			return false
		}
	}
	return err == nil
}

// A daemon without a loop, because no server answers, and a daemon that is stopped either serve metrics or do not. They never
// serve old values.
func TestMetricsWhileTheLoopIsStuck(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for i, id := range []string{"a", "b"} {
		f.configure(id, "dc1", 100-i, fmt.Sprintf("http: {listen: 'unix:%s'}\n", f.socket(id)))
		f.start(id)
		f.answers(id, "/readyz", 200)
	}
	f.until("a leads", leads("a"))
	metric := func(id, line string) {
		f.eventually(fmt.Sprintf("%s of %s", line, id), func() bool {
			code, body := f.ask(id, "/metrics")
			return code == 200 && strings.Contains(body, "\n"+line+"\n")
		}, func() string { _, body := f.ask(id, "/metrics"); return body })
	}
	group := fmt.Sprintf("group=%q", path.Base(f.paths.Root))
	leading := "zkelectd_is_leader{" + group + "} 1"
	metric("a", leading)

	daemon := f.daemon("a")
	syscall.Kill(daemon, syscall.SIGSTOP)
	f.eventually("all threads of a stand still", func() bool { return standsStill(daemon) })
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if resp, err := f.request(ctx, "a", "/metrics"); err == nil {
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		t.Errorf("a stopped daemon answers: %.200s, %v", body, err)
	}
	metric("b", leading) // it takes over, and serves metrics all the time
	f.waitForDeath(daemon)
	f.until("a is back", func(g status.Group) bool { return len(g.Members) == 2 && g.State == string(cluster.CurrentReady) })
	metric("a", "zkelectd_session_up 1")

	nowhere, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nowhere.Close()
	f.start("c", "--zk", nowhere.Addr().String(), "--root", f.paths.Root, "--id", "c", "--http", "unix:"+f.socket("c"))
	for _, line := range []string{"zkelectd_is_leader{" + group + "} 0", "zkelectd_is_elector{" + group + "} 0", "zkelectd_session_up 0", "zkelectd_state{" + group + `,state="connecting"} 1`} {
		metric("c", line)
	}
	f.checkInvariants()
}
