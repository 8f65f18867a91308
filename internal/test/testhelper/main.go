package testhelper

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// RunMain is for TestMain of packages whose tests share something, such as a server: it runs the tests, then the
// cleanups, and exits. An error of a cleanup, or a goroutine that is left, is a failure.
func RunMain(m *testing.M, cleanups ...func() error) {
	code := m.Run()
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	for _, cleanup := range cleanups {
		fail(cleanup())
	}
	if code == 0 {
		fail(goleak.Find())
	}
	os.Exit(code)
}
