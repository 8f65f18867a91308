package harden

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"zkelectd/internal/test/testhelper"
)

// Protection lasts for the life of a process, so the tests run this program again, in one of these roles.
func TestMain(m *testing.M) {
	switch os.Getenv("ROLE") {
	case "":
		goleak.VerifyTestMain(m)
	case "realtime":
		beRealtime()
	case "policy":
		fmt.Println(policies()[unix.SCHED_RR] == 0)
	case "score":
		fmt.Println(strings.TrimSpace(testhelper.Read(scoreFile)))
	case "core-parent":
		beCoreParent()
	case "core-child":
		fmt.Println(coreSoftLimit())
	case "core-crash":
		crash()
	case "protected":
		beProtected()
	}
}

// findings are what a protected process observes about itself.
type findings struct {
	Mode      string
	Locked    int64 // bytes
	OOMScore  string
	Log       string
	Rehearsed bool
	Threads   int
	Soft      uint64 // RLIMIT_MEMLOCK
	Child     string // the score of a child
	Unlocked  []string
	Large     bool // the program does not fit into 4 MB
}

func beProtected() {
	must := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if text := os.Getenv("LIMIT"); text != "" {
		limit, err := strconv.ParseUint(text, 10, 64)
		must(err)
		must(unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: min(limit, 4096), Max: limit}))
	}
	if text := os.Getenv("SCORE"); text != "" {
		must(os.WriteFile(scoreFile, []byte(text), 0))
	}
	var log bytes.Buffer
	var o findings
	Protect(Options{
		OOMScore: OOMScoreGuard, Procs: 2, Threads: 12, Heap: 1 << 20, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Rehearse: func() { o.Rehearsed = true },
	})
	o.Mode, o.Locked, o.OOMScore, o.Log = protection, lockedBytes(), strings.TrimSpace(testhelper.Read(scoreFile)), log.String()
	// The heap can grow and shrink while memory is locked.
	for range 20 {
		b := bytes.Repeat([]byte{1}, 4<<20)
		runtime.KeepAlive(b)
	}
	tasks, err := os.ReadDir("/proc/self/task")
	must(err)
	o.Threads = len(tasks)
	var limit unix.Rlimit
	must(unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit))
	o.Soft = limit.Cur
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{"ROLE=score"}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	must(WithChildScore(cmd.Run))
	o.Child = strings.TrimSpace(out.String())
	o.Unlocked, o.Large = unlockedProgram(), programSize() > 4<<20
	must(json.NewEncoder(os.Stdout).Encode(o))
}

func programSize() (size uintptr) {
	all, err := mappings()
	if err != nil {
		panic(err)
	}
	for _, m := range all {
		if m.file {
			size += m.to - m.from
		}
	}
	return size
}

// unlockedProgram returns the mappings of the program that are not locked as a whole.
func unlockedProgram() []string {
	var found []string
	var head string
	var size, rss int64
	for line := range strings.Lines(testhelper.Read("/proc/self/smaps")) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch key {
		case "Size":
			size = kilobytes(value)
		case "Rss":
			rss = kilobytes(value)
		case "VmFlags":
			if fields := strings.Fields(head); len(fields) > 5 && strings.HasPrefix(fields[5], "/") &&
				strings.HasPrefix(fields[1], "r") && (!strings.Contains(value+" ", " lo ") || rss < size) {
				found = append(found, head)
			}
		default:
			if strings.Contains(key, "-") && !strings.Contains(key, "Anon") {
				head = strings.TrimSpace(line)
			}
		}
	}
	return found
}

// lockedBytes returns how much memory of this process is locked.
func lockedBytes() int64 {
	_, size, _ := strings.Cut(testhelper.Read("/proc/self/status"), "VmLck:")
	return kilobytes(size)
}

// kilobytes returns a size such as "12 kB" in bytes.
func kilobytes(text string) (n int64) {
	fmt.Sscan(text, &n)
	return n << 10
}

func protected(t *testing.T, env ...string) findings {
	t.Helper()
	return protectedAs(t, nil, env...)
}

// unprivileged is a user without CAP_IPC_LOCK.
var unprivileged = &syscall.Credential{Uid: 65534, Gid: 65534}

func protectedAs(t *testing.T, user *syscall.Credential, env ...string) findings {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(append(os.Environ(), "ROLE=protected"), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	var o findings
	if err := json.Unmarshal(out, &o); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("%+v", o)
	if !o.Rehearsed {
		t.Error("nothing was rehearsed")
	}
	return o
}

// mustBeRoot fails a test that needs root.
func mustBeRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test locks memory without a limit and then drops that privilege: run it as root")
	}
}

// Everything is locked, and the threads are started in advance.
func TestProtectWithoutALimit(t *testing.T) {
	t.Parallel()
	mustBeRoot(t)
	o := protected(t)
	if o.Mode != modeAll || o.Locked < 1<<20 || len(o.Unlocked) > 0 || strings.Contains(o.Log, "bytes are locked") {
		t.Errorf("mode %s, %d bytes, not locked: %q; log: %s", o.Mode, o.Locked, o.Unlocked, o.Log)
	}
	if o.Threads < 12 || o.Child != "0" {
		t.Errorf("%d threads, and the child's score is %s", o.Threads, o.Child)
	}
}

// The limit is never exceeded, because the Go runtime could then not map memory. What was touched is locked, and one warning
// says what to set.
func TestProtectWithinALimit(t *testing.T) {
	t.Parallel()
	mustBeRoot(t)
	for limit, mode := range map[int64]string{64 << 10: modeTouched, 2 << 20: modeTouched, 8 << 20: modeProgram} {
		o := protectedAs(t, unprivileged, fmt.Sprint("LIMIT=", limit))
		if mode == modeProgram && o.Mode == modeTouched && o.Large {
			mode = modeTouched // the race detector's program
		}
		if o.Mode != mode || o.Locked > limit || o.Locked < limit/4 || o.Soft != uint64(limit) {
			t.Errorf("limit %d: mode %s, %d bytes, soft limit %d", limit, o.Mode, o.Locked, o.Soft)
		}
		explained := strings.Contains(o.Log, "LimitMEMLOCK=infinity") && strings.Contains(o.Log, "IPC_LOCK")
		if n := strings.Count(o.Log, "level=WARN"); n > 1 || explained != (mode == modeTouched) {
			t.Errorf("limit %d: %d warnings: %s", limit, n, o.Log)
		}
		if mode == modeProgram && len(o.Unlocked) > 0 {
			t.Errorf("limit %d: not locked: %q", limit, o.Unlocked)
		}
	}
}

// A program that may not lock any memory still runs.
func TestProtectWithoutPermission(t *testing.T) {
	t.Parallel()
	mustBeRoot(t)
	if o := protectedAs(t, unprivileged, "LIMIT=0"); o.Locked != 0 || !strings.Contains(o.Log, "LimitMEMLOCK=infinity") {
		t.Errorf("%+v", o)
	}
}

// A process may always lower its score to the value that it started with; children get that value, not the lowered one.
func TestScoreIsNotInherited(t *testing.T) {
	t.Parallel()
	if o := protected(t, "SCORE=300"); o.OOMScore != "0" && !strings.HasPrefix(o.OOMScore, "-") || o.Child != "300" {
		t.Errorf("own score %s, the child's %s", o.OOMScore, o.Child)
	}
}

// The process that a rehearsal kills waits, whatever the program is.
func TestRehearsalProcessWaits(t *testing.T) {
	path, env := RehearsalProcess()
	cmd := exec.Command(path)
	cmd.Env = env
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cmd.Process.Signal(syscall.SIGKILL)
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("%v", err)
	}
}

func beRealtime() {
	startThreads(4)
	if err := SetRealtime(os.Getpid()); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(policies()[unix.SCHED_RR] >= 4) // the runtime may start another thread meanwhile
	cmd := exec.Command("/proc/self/exe")
	cmd.Env, cmd.Stdout = []string{"ROLE=policy"}, os.Stdout
	if err := cmd.Run(); err != nil {
		fmt.Println(err)
	}
}

// policies counts the threads with each scheduling policy.
func policies() map[uint32]int {
	found := make(map[uint32]int)
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, task := range tasks {
		tid, _ := strconv.Atoi(task.Name())
		if attr, err := unix.SchedGetAttr(tid, 0); err == nil {
			found[attr.Policy]++
		}
	}
	return found
}

func TestRealtimeIsNotInherited(t *testing.T) {
	t.Parallel()
	mustBeRoot(t)
	for user, want := range map[*syscall.Credential]string{
		nil:          "true\ntrue\n",
		unprivileged: "cannot set a real-time priority: sched_setattr: operation not permitted: set LimitRTPRIO=1",
	} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), "ROLE=realtime")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), want) {
			t.Errorf("%v: got %s, want %s", err, out, want)
		}
	}
}
