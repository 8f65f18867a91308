package harden

import (
	"os"

	"golang.org/x/sys/unix"
)

// rehearsalVariable makes a process wait until it is killed, if it is set to 1.
const rehearsalVariable = "_ZKELECTD_REHEARSAL"

// The process started by a rehearsal waits here, before main.
func init() {
	if os.Getenv(rehearsalVariable) == "1" {
		for {
			unix.Pause()
		}
	}
}

// RehearsalProcess returns the path and the environment of a process that waits until it is killed; it is this program.
func RehearsalProcess() (path string, env []string) {
	return "/proc/self/exe", []string{rehearsalVariable + "=1"}
}
