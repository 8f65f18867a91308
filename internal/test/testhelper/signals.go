package testhelper

import (
	"os"
	"os/signal"
	"syscall"
)

// CatchIgnoredSignals makes the processes that the tests start get the default action of those signals that were
// ignored when the tests were started, as with nohup or in the background of a script: daemons keep that they are
// ignored.
func CatchIgnoredSignals() {
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}
