package harden

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// initialCoreLimit is the limit that the processes of the tests start with: a value that nothing else sets.
const initialCoreLimit = 123 << 12

func beCoreParent() {
	if err := DisableCoreDumps(); err != nil {
		fmt.Println(err)
	}
	fmt.Println(coreSoftLimit())
	err := WithChildCoreLimit(func() error {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env, cmd.Stdout = []string{"ROLE=core-child"}, os.Stdout
		return cmd.Run()
	})
	fmt.Println(coreSoftLimit(), err)
}

func crash() {
	if os.Getenv("DISABLE") != "" {
		DisableCoreDumps()
	}
	syscall.Kill(os.Getpid(), syscall.SIGQUIT) // SIGABRT and the like end in an exit by the Go runtime
	select {}
}

func coreSoftLimit() string {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &l); err != nil {
		return err.Error()
	}
	return fmt.Sprint(l.Cur)
}

func coreCommand(t *testing.T, role string, env ...string) *exec.Cmd {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: min(initialCoreLimit, was.Max), Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Setrlimit(unix.RLIMIT_CORE, &was) })
	cmd := exec.Command("/proc/self/exe")
	cmd.Dir, cmd.Env = t.TempDir(), append(env, "ROLE="+role)
	return cmd
}

func TestChildHasTheInheritedCoreLimit(t *testing.T) {
	cmd := coreCommand(t, "core-parent")
	was := coreSoftLimit()
	low := "1"
	if was == "0" { // no process here may leave a core, nor raise that limit
		low = was
	}
	out, err := cmd.Output()
	if want := fmt.Sprintf("%s\n%s\n%s <nil>\n", low, was, low); err != nil || string(out) != want {
		t.Errorf("%q, %v, want %q", out, err, want)
	}
}

// With GOTRACEBACK=crash the process ends by SIGABRT, and the kernel reports whether it left a core.
func TestNoCoreIsLeft(t *testing.T) {
	for _, disable := range []string{"", "yes"} {
		cmd := coreCommand(t, "core-crash", "GOTRACEBACK=crash", "DISABLE="+disable)
		err := cmd.Run()
		status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !ok || !status.Signaled() {
			t.Fatalf("it did not crash: %v", err)
		}
		if status.CoreDump() && disable != "" {
			t.Error("it left a core")
		}
		if !status.CoreDump() && disable == "" {
			pattern, _ := os.ReadFile("/proc/sys/kernel/core_pattern")
			t.Logf("without DisableCoreDumps no core is left here either (core_pattern %s): only the limit is tested", strings.TrimSpace(string(pattern)))
		}
	}
}
