package cli

import (
	"errors"
	"fmt"

	"zkelectd/internal/operator/request"
)

// The exit statuses besides 0; [exitStatuses] says what they mean.
const (
	statusNo       = 1
	statusError    = 2
	statusRefused  = 3
	statusTimedOut = 4
	statusFailed   = 5
	statusNotRun   = 125
)

// exitStatuses are the exit statuses of the commands, in the words of docs/operations.md.
var exitStatuses = []struct {
	status  int
	meaning string
}{
	{0, "the request is done, or there was nothing to do; or the answer to a question is yes"},
	{statusNo, "the answer is no, for `leader`, `policy --apply --dry-run`, `probe` and `whatif --all`, which answer " +
		"a question; `gameday` exits with 1 if the promise was not kept. `run` exits with 1 if the daemon gave up; " +
		"its log says why"},
	{statusError, "an error: a wrong command line, an invalid configuration, no answer from ZooKeeper. The message " +
		"says whether anything was changed"},
	{statusRefused, "refused: the state of the group does not allow it, it has no such node or site, or you did not " +
		"confirm it. Nothing was changed"},
	{statusTimedOut, "timed out: the request is in force, but has not taken effect within `--timeout`, or " +
		"before an interrupt"},
	{statusFailed, "failed: the request was submitted, but has ended without effect or was replaced; or it was " +
		"carried out in some groups only"},
	{statusNotRun, "`exec` has not run its job, also because of a wrong command line, or has stopped it; else it " +
		"exits with the status of the job. It is 126 or 127 if the job cannot be started"},
}

// exitError is an error with an exit status. If err is nil, nothing is printed.
type exitError struct {
	status int
	err    error
}

func (e exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.err.Error()
}

func (e exitError) Unwrap() error { return e.err }

// exitStatus returns the exit status for the error of a command.
func exitStatus(err error) int {
	var refused *request.RefusedError
	var code exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return code.status
	case errors.As(err, &refused):
		return statusRefused
	}
	return statusError
}

// refuse returns an error for what is not done because of the state of the group.
func refuse(format string, args ...any) error {
	return exitError{statusRefused, fmt.Errorf(format, args...)}
}
