package hook

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func shell(script string) []string { return []string{"sh", "-c", script} }

func read(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func TestRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x")
	if err := Run(t.Context(), "hooks.pre_start", shell("cat >"+file+"; echo $A >>"+file), []string{"A=b", "PATH=" + os.Getenv("PATH")}, []byte("in\n"), time.Minute); err != nil {
		t.Fatal(err)
	}
	if read(file) != "in\nb" {
		t.Errorf("%q", read(file))
	}
	if err := Run(t.Context(), "hooks.pre_start", nil, nil, nil, time.Minute); err != nil {
		t.Errorf("no hook: %v", err)
	}
	for want, argv := range map[string][]string{
		"hooks.pre_start sh failed: exit status 3: no disk": shell("echo no disk >&2; exit 3"),
		"/no/such/hook": {"/no/such/hook"},
	} {
		if err := Run(t.Context(), "hooks.pre_start", argv, os.Environ(), nil, time.Minute); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	err := Run(t.Context(), "x", shell("head -c 1000000 /dev/zero | tr '\\0' x; exit 1"), os.Environ(), nil, time.Minute)
	if err == nil || len(err.Error()) > 2*maxOutput {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
}

func TestTimeoutKillsTheWholeGroup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	err := Run(t.Context(), "hooks.post_stop", shell("trap '' TERM; sh -c 'echo $$ >"+file+"; exec sleep 1000' & wait"), os.Environ(), nil, 300*time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "not done within 300ms") {
		t.Errorf("%v", err)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(20 * time.Second); ; <-tick.C {
		data, err := os.ReadFile("/proc/" + read(file) + "/stat")
		if err != nil || strings.Contains(string(data), ") Z ") {
			return
		}
		if time.Now().After(limit) {
			t.Fatal("what the hook has started survives it")
		}
	}
}

func TestCancelCutsShort(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Run(ctx, "hooks.pre_start", shell("sleep 1000"), os.Environ(), nil, time.Minute); err == nil || !strings.Contains(err.Error(), "cut short") {
		t.Errorf("%v", err)
	}
}

func TestQueueRunsInOrderOneAtATime(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x")
	// A hook that finds the lock of another one has not been alone.
	q := NewQueue(QueueOptions{Name: "hooks.on_change", Argv: shell(fmt.Sprintf("mkdir %s.lock || echo together >>%s; cat >>%s; rmdir %s.lock", file, file, file, file)),
		Env: os.Environ(), Timeout: time.Minute, Log: slog.New(slog.DiscardHandler)})
	var want strings.Builder
	for i := range 20 {
		q.Push(fmt.Appendf(nil, "%d\n", i))
		fmt.Fprintf(&want, "%d\n", i)
	}
	q.Close(context.Background())
	if got := read(file) + "\n"; got != want.String() {
		t.Errorf("got %q", got)
	}
	q.Push([]byte("late")) // after the end: ignored
}

func TestSlowQueueDropsTheOldest(t *testing.T) {
	dir := t.TempDir()
	var log bytes.Buffer
	q := NewQueue(QueueOptions{Name: "hooks.on_change", Argv: shell(fmt.Sprintf("while [ ! -e %s/go ]; do sleep 0.01; done; cat >>%s/out", dir, dir)),
		Env: os.Environ(), Timeout: time.Minute, Log: slog.New(slog.NewTextHandler(&log, nil))})
	for i := range 3 * maxWaiting {
		q.Push(fmt.Appendf(nil, "%d\n", i))
	}
	if err := os.WriteFile(dir+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	q.Close(context.Background())
	lines := strings.Fields(read(dir + "/out"))
	if len(lines) > maxWaiting+1 || lines[len(lines)-1] != fmt.Sprint(3*maxWaiting-1) {
		t.Errorf("%d ran, the last %q", len(lines), lines[len(lines)-1])
	}
	if !strings.Contains(log.String(), "too slow") {
		t.Errorf("not logged: %s", log.String())
	}
}

func TestCloseDoesNotWaitForEver(t *testing.T) {
	q := NewQueue(QueueOptions{Name: "hooks.on_change", Argv: shell("sleep 1000"), Env: os.Environ(), Timeout: time.Hour, Log: slog.New(slog.DiscardHandler)})
	q.Push([]byte("x"))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	q.Close(ctx)
}
