package recipes

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"zkelectd/internal/test/zkserver"
)

func init() { recipes["cron-job"] = cronJob }

// cronJob starts the command of the example on two hosts at once, ten times: one of them runs the job. Then it kills a host.
func cronJob(t *testing.T) {
	f := newFleet(t, zkserver.Options{})
	var line string
	for l := range strings.Lines(f.example("cron-job/cron.d")) {
		if strings.HasPrefix(l, "0 2 ") {
			_, line, _ = strings.Cut(strings.TrimSpace(l), " root ")
		}
	}
	service := f.example("cron-job/nightly-report.service")
	if !strings.Contains(service, "\nExecStart=/usr/bin/"+line+"\n") {
		t.Errorf("the service does not run %s", line)
	}
	script := f.write("job", "#!/bin/sh\necho \"$ZKELECTD_NODE $ZKELECTD_TERM\" >>"+f.file("runs")+"\n")
	start := func(host, group, job string) {
		cmd := exec.Command("sh", "-c", "exec "+strings.NewReplacer("zkelectd exec", binary+" exec", "-g nightly-report", "-g "+group, "/usr/local/bin/nightly-report", job).Replace(line))
		cmd.Env = append(os.Environ(), "ZKELECTD_ZOOKEEPER_SERVERS="+f.zk.Addr(), "ZKELECTD_NODE_ID="+host)
		f.start(host, cmd)
	}
	runs := func() int {
		data, err := os.ReadFile(f.file("runs"))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return strings.Count(string(data), "\n")
	}
	create := func(group string) {
		if out, status := f.zkelectd("init", "--zk", f.zk.Addr(), "--root", "/jobs/"+group); status != 0 {
			t.Fatal(out)
		}
	}
	for round := range 10 {
		group := fmt.Sprintf("job%d", round)
		create(group)
		start("n1", group, script)
		start("n2", group, script)
		first, second := f.exit("n1"), f.exit("n2")
		start("n3", group, script) // late
		if late := f.exit("n3"); first != 0 || second != 0 || late != 0 || runs() != round+1 {
			t.Fatalf("round %d: %d runs in total, the exit statuses are %d, %d and %d", round, runs(), first, second, late)
		}
	}
	long := f.write("long", "#!/bin/sh\necho $$ >"+f.file("pid")+"\nsleep 1000\n")
	create("job-killed")
	start("n1", "job-killed", long)
	var pid int
	f.eventually("the job runs", func() bool {
		data, err := os.ReadFile(f.file("pid"))
		_, scanErr := fmt.Sscan(string(data), &pid)
		return err == nil && scanErr == nil
	})
	f.processes["n1"].Process.Kill()
	f.eventually("the job is dead", func() bool { return syscall.Kill(pid, 0) != nil })
	start("n2", "job-killed", script)
	if status := f.exit("n2"); status != 0 || runs() != 11 {
		t.Errorf("after the first host was killed: exit status %d, %d runs", status, runs())
	}
}
