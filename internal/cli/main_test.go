package cli

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"zkelectd/internal/guard"
	"zkelectd/internal/test/testhelper"
	"zkelectd/internal/test/zkserver"
)

// shared is the ZooKeeper server of all tests that do not disturb it; each has its own root.
var shared *zkserver.Server

// suite runs the tests with a server.
type suite struct{ m *testing.M }

func (s suite) Run() int {
	testhelper.CatchIgnoredSignals()
	races, err := testhelper.CollectRaces()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "zk")
	if err == nil {
		err = os.Chmod(dir, 0o755) // for other users
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	os.Setenv("TMPDIR", dir)
	// Daemons have no state of this machine's daemon, and none unless a test gives them a directory.
	os.Setenv("STATE_DIRECTORY", filepath.Join(dir, "none", "state"))
	if shared, err = zkserver.Start(context.Background(), zkserver.Options{Tick: 100 * time.Millisecond}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := runInParallel(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := s.m.Run()
	endBrowser()
	shared.Stop()
	if err := races.Check(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

// runInParallel raises the default of -parallel, the number of processors: most tests wait for sessions and leases to end.
func runInParallel() error {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return nil
	}
	return flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0)))
}

// program is the program with the host's configuration file that a test names.
func program() {
	hostFile = cmp.Or(os.Getenv(testHostFile), hostFile)
	guard.MaybeRunKeeper()
	os.Exit(Run())
}

// testHostFile is the environment variable that names the host's configuration file.
const testHostFile = "TEST_HOST_FILE"

// The test binary also runs as the program and as its child, so that the tests cover them with the race detector.
func TestMain(m *testing.M) {
	testscript.Main(suite{m}, map[string]func(){
		"zkelectd":     program,
		"ledger-child": ledgerChild,
		"slot-child":   slotChild,
		"memory-hog":   memoryHog,
	})
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("ZK", shared.Addr())
			ports, err := zkserver.FreePorts(1)
			if err != nil {
				return err
			}
			env.Setenv("HTTP", fmt.Sprintf("127.0.0.1:%d", ports[0]))
			env.Setenv("ROOT", fmt.Sprintf("/groups/s%d", groups.Add(1)))
			for _, name := range []string{"GORACE", "STATE_DIRECTORY"} {
				env.Setenv(name, os.Getenv(name))
			}
			return nil
		},
	})
}
