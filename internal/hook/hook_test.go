package hook

import (
	"bytes"
	"context"
	"errors"
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

func hook(argv []string) Hook {
	return Hook{Setting: "hooks.pre_start", Argv: argv, Env: os.Environ(), Timeout: time.Minute}
}

func TestRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x")
	h := hook(shell("cat >" + file + "; echo $A >>" + file))
	h.Env = []string{"A=b", "PATH=" + os.Getenv("PATH")}
	if err := h.Run(t.Context(), []byte("in\n")); err != nil {
		t.Fatal(err)
	}
	if read(file) != "in\nb" {
		t.Errorf("%q", read(file))
	}
	if err := hook(nil).Run(t.Context(), nil); err != nil {
		t.Errorf("no hook: %v", err)
	}
	for want, argv := range map[string][]string{
		"hooks.pre_start sh failed: exit status 3: no disk": shell("echo no disk >&2; exit 3"),
		"/no/such/hook": {"/no/such/hook"},
	} {
		if err := hook(argv).Run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}

func TestOutput(t *testing.T) {
	out, err := hook(shell("cat; echo noise >&2")).Output(t.Context(), []byte("in\n"))
	if err != nil || string(out) != "in\n" {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := hook(nil).Output(t.Context(), nil); err != nil || len(out) != 0 {
		t.Errorf("no program: %q, %v", out, err)
	}
	for want, script := range map[string]string{
		"hooks.pre_start sh failed: exit status 3: no disk": "echo answer; echo no disk >&2; exit 3",
		"hooks.pre_start sh failed: exit status 4":          "echo answer; exit 4",
		"hooks.pre_start sh failed: signal: killed":         "kill -9 $$",
	} {
		if out, err := hook(shell(script)).Output(t.Context(), nil); err == nil || err.Error() != want || len(out) != 0 {
			t.Errorf("%v, want %q; output %q", err, want, out)
		}
	}
	out, err = hook(shell("head -c 3000000 /dev/zero | tr '\\0' x")).Output(t.Context(), nil)
	if err != nil || len(out) != maxOutput {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}

func TestTimeout(t *testing.T) {
	h := hook(shell("trap '' TERM; echo busy; sleep 1000"))
	h.Timeout = 300 * time.Millisecond
	if err := h.Run(t.Context(), nil); err == nil || err.Error() != "hooks.pre_start sh failed: not done within 300ms: busy" {
		t.Errorf("%v", err)
	}
}

func TestCancelCutsShort(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	out, err := hook(shell("sleep 1000")).Output(ctx, nil)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "cut short") || len(out) != 0 {
		t.Errorf("%q, %v", out, err)
	}
}

func TestQueueRunsInOrderOneAtATime(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x")
	// A hook that finds the lock of another one did not run alone.
	q := NewQueue(hook(shell(fmt.Sprintf("mkdir %s.lock || echo together >>%s; cat >>%s; rmdir %s.lock", file, file, file, file))), slog.New(slog.DiscardHandler))
	var want strings.Builder
	for i := range 20 {
		q.Push(fmt.Appendf(nil, "%d\n", i))
		fmt.Fprintf(&want, "%d\n", i)
	}
	q.Close(context.Background())
	if got := read(file) + "\n"; got != want.String() {
		t.Errorf("got %q", got)
	}
	q.Push([]byte("late")) // ignored after Close
}

func TestFullQueueDropsTheOldest(t *testing.T) {
	dir := t.TempDir()
	var log bytes.Buffer
	script := fmt.Sprintf("while [ ! -e %s/go ]; do sleep 0.01; done; cat >>%s/out", dir, dir)
	q := NewQueue(hook(shell(script)), slog.New(slog.NewTextHandler(&log, nil)))
	for i := range 3 * maxQueued {
		q.Push(fmt.Appendf(nil, "%d\n", i))
	}
	if err := os.WriteFile(dir+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	q.Close(context.Background())
	lines := strings.Fields(read(dir + "/out"))
	if len(lines) > maxQueued+1 || lines[len(lines)-1] != fmt.Sprint(3*maxQueued-1) {
		t.Errorf("%d ran, the last %q", len(lines), lines[len(lines)-1])
	}
	if !strings.Contains(log.String(), "too slow") {
		t.Errorf("not logged: %s", log.String())
	}
}

func TestCloseDoesNotWaitForever(t *testing.T) {
	q := NewQueue(hook(shell("sleep 1000")), slog.New(slog.DiscardHandler))
	q.Push([]byte("x"))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	q.Close(ctx)
}
