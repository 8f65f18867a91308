package coredump

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// before is what the processes of the test are started with: no value that anything else comes to.
const before = 123 << 12

func TestMain(m *testing.M) {
	switch os.Getenv("ROLE") {
	case "daemon":
		if err := Forbid(); err != nil {
			fmt.Println(err)
		}
		fmt.Println(limit())
		err := Inherited(func() error {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env, cmd.Stdout = []string{"ROLE=child"}, os.Stdout
			return cmd.Run()
		})
		fmt.Println(limit(), err)
	case "child":
		fmt.Println(limit())
	case "crash":
		if os.Getenv("FORBID") != "" {
			Forbid()
		}
		syscall.Kill(os.Getpid(), syscall.SIGQUIT) // Go's own handling of SIGABRT and the like ends in an exit
		select {}
	default:
		os.Exit(m.Run())
	}
}

func limit() string {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &l); err != nil {
		return err.Error()
	}
	return fmt.Sprint(l.Cur)
}

func role(t *testing.T, name string, env ...string) *exec.Cmd {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: min(before, was.Max), Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Setrlimit(unix.RLIMIT_CORE, &was) })
	cmd := exec.Command("/proc/self/exe")
	cmd.Dir, cmd.Env = t.TempDir(), append(env, "ROLE="+name)
	return cmd
}

func TestTheChildHasTheLimitThatWasInherited(t *testing.T) {
	cmd := role(t, "daemon")
	was := limit()
	low := "1"
	if was == "0" { // nobody may leave one here, and nobody may raise that
		low = was
	}
	out, err := cmd.Output()
	if want := fmt.Sprintf("%s\n%s\n%s <nil>\n", low, was, low); err != nil || string(out) != want {
		t.Errorf("%q, %v, want %q", out, err, want)
	}
}

// With a core that is wanted (GOTRACEBACK=crash) the process ends by SIGABRT, and the kernel says whether it has left one.
func TestNoCoreIsLeft(t *testing.T) {
	for _, forbid := range []string{"", "yes"} {
		cmd := role(t, "crash", "GOTRACEBACK=crash", "FORBID="+forbid)
		err := cmd.Run()
		status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !ok || !status.Signaled() {
			t.Fatalf("it did not crash: %v", err)
		}
		if status.CoreDump() && forbid != "" {
			t.Error("it has left a core")
		}
		if !status.CoreDump() && forbid == "" {
			pattern, _ := os.ReadFile("/proc/sys/kernel/core_pattern")
			t.Logf("no core is left here without it, either (core_pattern %s): only the limit can be seen", strings.TrimSpace(string(pattern)))
		}
	}
}
