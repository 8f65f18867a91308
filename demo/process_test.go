package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"zkelectd/internal/sys/procinfo"
	"zkelectd/internal/test/testhelper"
)

func TestMain(m *testing.M) {
	if os.Getenv("ROLE") == "parent" {
		parent()
		return
	}
	goleak.VerifyTestMain(m)
}

// parent starts a process, prints its pid, and waits to be killed.
func parent() {
	p, err := startProcess([]string{"sleep", "1000"}, nil, os.Stderr)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.pid())
	<-p.done
}

func alive(pid int) bool {
	s, err := procinfo.ReadStat(pid)
	return err == nil && !s.Ended()
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testhelper.Eventually(t, 30*time.Second, what, ok)
}

// read returns the process id that a script wrote to a file; 0 if there is none yet.
func read(path string) int {
	data, _ := os.ReadFile(path)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(data)))
	return pid
}

func TestProcessEndsWithItsGroup(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		grace  time.Duration
	}{
		"on TERM":                 {"echo $$ >F; exec sleep 1000", time.Minute},
		"ignores TERM":            {"trap '' TERM; echo $$ >F; while :; do sleep 0.01; done", 50 * time.Millisecond},
		"its child ignores TERM":  {"(trap '' TERM; sh -c 'echo $$ >F; while :; do sleep 0.01; done') & wait", 50 * time.Millisecond},
		"leaves a child behind":   {"sh -c 'echo $$ >F; exec sleep 1000' & while [ ! -s F ]; do :; done; exit 0", time.Minute},
		"its child outlives TERM": {"(trap '' TERM; sh -c 'echo $$ >F; exec sleep 1000') & trap 'exit 0' TERM; while :; do sleep 0.01; done", time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			file := t.TempDir() + "/pid"
			p, err := startProcess([]string{"sh", "-c", strings.ReplaceAll(c.script, "F", file)}, os.Environ(), os.Stderr)
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "the start", func() bool { return read(file) != 0 })
			p.terminate()
			p.wait(c.grace)
			eventually(t, "the end of "+name, func() bool { return !alive(read(file)) })
		})
	}
}

func TestProcessDiesWithItsParent(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "ROLE=parent")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || !alive(pid) {
		t.Fatalf("no process: %q", line)
	}
	cmd.Process.Kill()
	cmd.Wait()
	eventually(t, "the end of the process", func() bool { return !alive(pid) })
}

func TestProgramThatCannotBeStarted(t *testing.T) {
	if _, err := startProcess([]string{"/no/such/program"}, nil, os.Stderr); err == nil {
		t.Error("no error")
	}
}
