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
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"zkelectd/internal/test/testhelper"
	"zkelectd/internal/work/command"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func shell(script string) []string { return []string{"sh", "-c", script} }

func read(path string) string { return strings.TrimSpace(testhelper.Read(path)) }

func hook(argv []string) Hook {
	return Hook{Setting: "hooks.pre_start", Argv: argv, Env: os.Environ(), Timeout: time.Minute}
}

func always(argv []string) func() Hook { return func() Hook { return hook(argv) } }

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
	const want = "hooks.pre_start sh failed: exit status 4" // see package command
	if out, err := hook(shell("echo answer; exit 4")).Output(t.Context(), nil); err == nil || err.Error() != want || len(out) != 0 {
		t.Errorf("%v, want %q; output %q", err, want, out)
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
	q := NewQueue(always(shell(fmt.Sprintf("mkdir %s.lock || echo together >>%s; cat >>%s; rmdir %s.lock", file, file, file, file))), slog.New(slog.DiscardHandler))
	var want strings.Builder
	for i := range 20 {
		q.Push(Input{Data: fmt.Appendf(nil, "%d\n", i)})
		fmt.Fprintf(&want, "%d\n", i)
	}
	q.Close(context.Background())
	if got := read(file) + "\n"; got != want.String() {
		t.Errorf("got %q", got)
	}
	q.Push(Input{Data: []byte("late")}) // ignored after Close
}

func TestFullQueueDropsTheOldest(t *testing.T) {
	dir := t.TempDir()
	var log bytes.Buffer
	script := fmt.Sprintf("while [ ! -e %s/go ]; do sleep 0.01; done; cat >>%s/out", dir, dir)
	q := NewQueue(always(shell(script)), slog.New(slog.NewTextHandler(&log, nil)))
	for i := range 3 * maxQueued {
		q.Push(Input{Data: fmt.Appendf(nil, "%d\n", i)})
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

// While the hook runs, only the newest input waits; it comes with its own variables, and with the command in force then.
func TestLatestDropsWhatIsOutdated(t *testing.T) {
	dir := t.TempDir()
	out, version := dir+"/out", atomic.Int32{}
	script := fmt.Sprintf("touch %s/began; while [ ! -e %[1]s/go ]; do sleep 0.01; done; echo $VERSION $A $(cat) >>%s", dir, out)
	q := NewLatest(func() Hook {
		h := hook(shell(script))
		h.Env = append(h.Env, fmt.Sprintf("VERSION=%d", version.Load()))
		return h
	}, slog.New(slog.DiscardHandler))
	push := func(i int) { q.Push(Input{Data: fmt.Appendf(nil, "%d", i), Env: []string{fmt.Sprintf("A=a%d", i)}}) }
	push(0)
	for tick := time.Tick(5 * time.Millisecond); ; <-tick {
		if _, err := os.Stat(dir + "/began"); err == nil {
			break
		}
	}
	version.Store(1)
	for i := 1; i < 10; i++ {
		push(i)
	}
	if err := os.WriteFile(dir+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	q.Close(t.Context())
	if got := read(out); got != "0 a0 0\n1 a9 9" {
		t.Errorf("%q", got)
	}
}

func TestCloseDoesNotWaitForever(t *testing.T) {
	q := NewQueue(always(shell("sleep 1000")), slog.New(slog.DiscardHandler))
	q.Push(Input{Data: []byte("x")})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	q.Close(ctx)
}

// A hook that waits for others does not use up its own time.
func TestLimit(t *testing.T) {
	limit := command.NewLimit(1)
	if err := limit.Enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := Hook{Setting: "hooks.on_change", Argv: []string{"true"}, Timeout: 10 * time.Second, Limit: limit}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Run(ended, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("while another one runs: %v", err)
	}
	done := make(chan error)
	go func() { done <- h.Run(t.Context(), nil) }()
	limit.Leave()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if len(limit) != 0 {
		t.Error("it has not left")
	}
}
