package clients

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"zkelectd/client"
	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/test/testhelper"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "application" {
		application(os.Args[2:])
	}
	dir, err := os.MkdirTemp("", "zkelectd-clients")
	if err != nil {
		panic(err)
	}
	built = dir
	testhelper.RunMain(m, func() error { return os.RemoveAll(dir) })
}

// built is the directory for what the tests build once.
var (
	built   string
	daemon  sync.Once
	classes sync.Once
)

// application works whenever it leads. Its arguments are the socket, the group, how long a lease lasts at most, and
// whether it goes on when it is asked to stop. It prints "lead TOKEN" once it is the leader, "led FROM TO TOKEN" with
// the times on CLOCK_BOOTTIME at which it was the leader for certain, and "violation" if it believes that it leads
// after it has stood still for longer than a lease. The files in testdata do the same.
func application(args []string) {
	leader := &client.Client{Socket: args[0], Group: args[1]}
	limit, _ := strconv.ParseInt(args[2], 10, 64)
	stubborn := args[3] == "true"
	again := time.NewTicker(time.Millisecond)
	for {
		leader.RunWhileLeading(context.Background(), func(ctx context.Context) error {
			token := leader.Token()
			var first, last, previous time.Duration
			for stubborn || first == 0 || ctx.Err() == nil {
				at := boottime.Now()
				if !leader.IsLeader() {
					break
				}
				if previous != 0 && at-previous > time.Duration(limit) {
					fmt.Println("violation", at-previous)
				}
				if first == 0 {
					first = at
					fmt.Println("lead", token)
				}
				last, previous = at, at
				<-again.C
			}
			for i := 0; stubborn && i < 200; i++ {
				<-again.C
				if leader.IsLeader() {
					fmt.Println("violation: the lease is valid again")
				}
			}
			fmt.Println("led", first.Nanoseconds(), last.Nanoseconds(), token)
			return nil
		})
		if leader.IsLeader() {
			fmt.Println("violation: without a lease")
		}
	}
}

// languages returns the command of the application in each language.
func languages(t *testing.T) map[string][]string {
	t.Helper()
	classes.Do(func() {
		out, err := exec.CommandContext(t.Context(), "javac", "-Xlint:all,-serial", "-Werror", "-d", built,
			"../../../clients/java/Zkelectd.java", "testdata/App.java").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	})
	python, err := filepath.Abs("../../../clients/python")
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]string{
		"go":     {os.Args[0], "application"},
		"python": {"env", "PYTHONPATH=" + python, "python3", "-B", "testdata/app.py"},
		"java":   {"java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx32m", "-cp", built, "App"},
	}
}
