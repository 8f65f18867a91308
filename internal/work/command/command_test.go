package command

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"zkelectd/internal/test/hostfault"
	"zkelectd/internal/test/testhelper"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func shell(script string) Command {
	return Command{Argv: []string{"sh", "-c", script}, Env: os.Environ()}
}

func read(path string) string { return strings.TrimSpace(testhelper.Read(path)) }

func TestRun(t *testing.T) {
	c := shell("cat; echo $A; echo noise >&2")
	c.Input, c.Env = []byte("in\n"), []string{"A=b", "PATH=" + os.Getenv("PATH")}
	if out, err := c.Run(t.Context()); err != nil || out != nil {
		t.Errorf("%q, %v", out, err)
	}
	c.MaxOutput = 100
	if out, err := c.Run(t.Context()); err != nil || string(out) != "in\nb\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// A command cannot be stopped by a terminal: it has a session of its own, which has none.
func TestNoTerminal(t *testing.T) {
	c := shell("set -- $(cat /proc/$$/stat); echo $(($6 - $$)) $7")
	c.MaxOutput = 100
	if out, err := c.Run(t.Context()); err != nil || string(out) != "0 0\n" {
		t.Errorf("the session and the terminal are %q, %v", out, err)
	}
}

// A command on a disk that does not answer, or in a directory there, ends with its context, and keeps no other from
// being started.
func TestProgramOnAHangingDisk(t *testing.T) {
	sleep, err := filepath.EvalSymlinks("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	disk, err := hostfault.MountDisk(t.TempDir(), sleep)
	if err != nil {
		t.Fatal(err)
	}
	disk.Stall(true)
	ctx, cancel := context.WithCancel(t.Context())
	hanging := make(chan error, 1)
	go func() {
		_, err := Command{Argv: []string{disk.Program, "1000"}}.Run(ctx)
		hanging <- err
	}()
	for tick := time.NewTicker(time.Millisecond); disk.Waited() == 0; {
		<-tick.C
	}
	if _, err := shell("exit 0").Run(t.Context()); err != nil {
		t.Error(err)
	}
	before := runtime.NumGoroutine()
	for range 20 { // as a probe is
		limited, end := context.WithTimeout(t.Context(), time.Millisecond)
		Command{Argv: []string{disk.Program, "1000"}}.Run(limited)
		end()
	}
	if more := runtime.NumGoroutine() - before; more > 10 {
		t.Errorf("%d more wait for the disk, each with a thread", more)
	}
	runtime.GC() // a fork that waits for the disk would keep it from running
	cancel()
	if err := <-hanging; !errors.Is(err, context.Canceled) ||
		!strings.Contains(err.Error(), disk.Program+" cannot be read: does its disk answer?") {
		t.Errorf("%v", err)
	}
	if err := disk.Close(); err != nil {
		t.Error(err)
	}
}

// A command that a kill does not end is given up, and not started again before it has ended.
func TestCommandThatCannotBeKilled(t *testing.T) {
	program, err := filepath.EvalSymlinks("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	disk, err := hostfault.MountDisk(t.TempDir(), program)
	if err != nil {
		t.Fatal(err)
	}
	disk.Stall(true)
	// Past the cache of pages, the read cannot be interrupted.
	c := shell("exec dd if=" + disk.Program + " of=/dev/null iflag=direct bs=4096 count=1")
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := c.Run(ctx)
		result <- err
	}()
	for tick := time.NewTicker(time.Millisecond); disk.Waited() == 0; {
		<-tick.C
	}
	cancel()
	select {
	case err := <-result:
		if err == nil || !strings.Contains(err.Error(), "was killed, but has not ended") {
			t.Errorf("%v", err)
		}
	case <-time.After(20 * time.Second):
		disk.Stall(false)
		<-result
		t.Fatal("it is not given up")
	}
	waited := disk.Waited()
	if _, err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "an earlier run of sh was killed") {
		t.Errorf("the next run: %v", err)
	}
	if disk.Waited() != waited {
		t.Error("it was started again")
	}
	if _, err := shell("exit 0").Run(t.Context()); err != nil {
		t.Errorf("another command: %v", err)
	}
	disk.Stall(false)
	testhelper.Eventually(t, 20*time.Second, "a run after the end of the first", func() bool {
		_, err := c.Run(t.Context())
		return err == nil
	})
	if err := disk.Close(); err != nil {
		t.Error(err)
	}
}

func TestErrorContainsTheOutput(t *testing.T) {
	for script, want := range map[string][2]string{ // without and with MaxOutput
		"echo answer; echo no disk >&2; exit 3": {"exit status 3: answer\nno disk", "exit status 3: no disk"},
		"echo answer; exit 4":                   {"exit status 4: answer", "exit status 4"},
		"kill -9 $$":                            {"signal: killed", "signal: killed"},
	} {
		for i, limit := range []int{0, 100} {
			c := shell(script)
			c.MaxOutput = limit
			out, err := c.Run(t.Context())
			if err == nil || err.Error() != want[i] || len(out) != 0 {
				t.Errorf("%s, MaxOutput %d: %v, want %q; output %q", script, limit, err, want[i], out)
			}
		}
	}
	_, err := Command{Argv: []string{"/no/such/program"}}.Run(t.Context())
	var failed *Error
	if !errors.As(err, &failed) || !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "/no/such/program") {
		t.Errorf("%v", err)
	}
}

func TestOutputIsBounded(t *testing.T) {
	const flood = "head -c 3000000 /dev/zero | tr '\\0' x"
	c := shell(flood)
	c.MaxOutput = 1000
	if out, err := c.Run(t.Context()); err != nil || len(out) != c.MaxOutput {
		t.Errorf("%d bytes, %v", len(out), err)
	}
	for limit, want := range map[int]int{0: maxErrorText, 200: 200} {
		c := shell(flood + " >&2; exit 1")
		c.MaxErrorText = limit
		_, err := c.Run(t.Context())
		var failed *Error
		if !errors.As(err, &failed) || len(failed.Text) != want {
			t.Errorf("MaxErrorText %d: %v", limit, err)
		}
	}
}

// waitUntilDead waits until a process has ended; a zombie has.
func waitUntilDead(t *testing.T, pid string) {
	t.Helper()
	testhelper.Eventually(t, 20*time.Second, "the end of a process that the command started", func() bool {
		data, err := os.ReadFile("/proc/" + pid + "/stat")
		return err != nil || strings.Contains(string(data), ") Z ")
	})
}

func TestRunKillsTheProcessGroup(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"too slow":  {"trap '' TERM; wait", "signal: killed"},
		"succeeded": {"exit 0", ""},
		"failed":    {"exit 1", "exit status 1"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "pid")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if name == "too slow" {
				ctx, cancel = context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
			}
			began := time.Now()
			// The process that is started in the background keeps the output open.
			_, err := shell("sh -c 'echo $$ >" + file + "; exec sleep 1000' & while [ ! -s " + file + " ]; do :; done; " + c.script).Run(ctx)
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("took %s", took)
			}
			if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
				t.Errorf("%v, want %q", err, c.want)
			}
			waitUntilDead(t, read(file))
		})
	}
}
