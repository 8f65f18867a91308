package main

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"zkelectd/internal/zkserver"
)

// shared is the ZooKeeper server of all tests that do not disturb it; each has a root of its own.
var shared *zkserver.Server

// suite runs the tests with a server.
type suite struct{ m *testing.M }

func (s suite) Run() int {
	// The race detector delays every exit by a second, which children that must stop in time do not have.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	var err error
	if shared, err = zkserver.Start(context.Background(), zkserver.Options{Tick: 100 * time.Millisecond}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := s.m.Run()
	shared.Stop()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

// The test binary also runs as the program and as its child, so that the tests cover them with the race detector.
func TestMain(m *testing.M) {
	testscript.Main(suite{m}, map[string]func(){
		"zkelectd":     main,
		"ledger-child": ledgerChild,
		"memory-hog":   memoryHog,
	})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("ZK", shared.Addr())
			env.Setenv("ROOT", fmt.Sprintf("/groups/s%d", groups.Add(1)))
			env.Setenv("GORACE", os.Getenv("GORACE"))
			return nil
		},
	})
}
