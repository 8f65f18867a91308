package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/guard"
	"zkelectd/internal/work/hook"
)

// killTimeout bounds how long the rest of the work may take to die once it is killed.
const killTimeout = 5 * time.Second

// LockSessionFile locks a session file. It waits for the kill margin at most: that long the processes of a zkelectd
// that was killed may take to end. The timeout in the file is only what its writer said, but the wait changes nothing
// else.
func LockSessionFile(ctx context.Context, file string) (*os.File, error) {
	f, _ := guard.ReadSessionFile(file) // whoever has the lock reports the error
	return guard.LockSessionFile(ctx, file, cluster.KillMargin(f.Session.Timeout))
}

// ErrNothingLeft reports that the last zkelectd has left nothing behind.
var ErrNothingLeft = errors.New("nothing to clean up: the last zkelectd has closed its session")

// CleanUp cleans up after a dead zkelectd: it kills its work, runs its pending hooks and closes its session.
// The session is closed only if the kernel reports all of the work as dead, and if the hooks have succeeded. The caller
// must have locked the file: the hooks must not run twice, and nobody else's files may be removed.
func CleanUp(ctx context.Context, file string, out io.Writer) error {
	f, err := guard.ReadSessionFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNothingLeft
	}
	if err != nil {
		return err
	}
	unproven := f.EnsureDead(killTimeout)
	if unproven != nil && !errors.Is(unproven, guard.ErrWorkMayRun) {
		return fmt.Errorf("the session is not closed: %w", unproven)
	}
	// The hooks run even if some of the work may still run: nobody else will run them.
	if err := runPendingHooks(ctx, f); err != nil {
		return fmt.Errorf("the session is not closed, because a pending hook failed: %w", errors.Join(unproven, err))
	}
	if err := f.ClearPendingHooks(file); err != nil {
		return err
	}
	if unproven != nil {
		return fmt.Errorf("the session is left to expire: %w", unproven)
	}
	ctx, cancel := context.WithTimeout(ctx, max(f.Session.Timeout, time.Second))
	defer cancel()
	leadership, err := closeSession(ctx, f.Session)
	if err != nil {
		return err
	}
	if leadership != "" {
		leadership = "; leadership is " + leadership
	}
	f.Session.File = file // it may have been moved
	guard.RemoveSessionFile(f.Session)
	fmt.Fprintf(out, "closed session 0x%x%s\n", f.Session.ID, leadership)
	return nil
}

// pendingHookTimeout bounds each pending hook. No session is at stake any more.
const pendingHookTimeout = 10 * time.Second

// runPendingHooks runs the post_stop and on_change of a leadership that the dead daemon could not end (A5 in docs/protocol.md).
func runPendingHooks(ctx context.Context, f guard.SessionFile) error {
	var errs []error
	for _, spec := range f.PendingHooks() {
		argv := append([]string{spec.Path}, spec.Argv[1:]...)
		errs = append(errs, hook.Hook{Setting: "hooks", Argv: argv, Env: spec.Env, Timeout: pendingHookTimeout}.Run(ctx, spec.Input))
	}
	return errors.Join(errs...)
}
