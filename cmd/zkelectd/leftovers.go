package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/guard"
	"zkelectd/internal/hook"
)

// killTimeout bounds how long the rest of the work may take to die once it is killed.
const killTimeout = 5 * time.Second

// cleanUpTimeout bounds how long another process may take to clean up the same leftovers.
const cleanUpTimeout = time.Minute

// cleanUpLeftovers cleans up after a dead zkelectd: it kills its work, runs its pending hooks and closes its session. The
// session is closed only if the kernel reports all of the work as dead, and if the hooks have succeeded.
func cleanUpLeftovers(ctx context.Context, file string, out io.Writer) error {
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return nil // ended cleanly
	}
	unlock, err := lockLeftovers(ctx, filepath.Dir(file))
	if err != nil {
		return err
	}
	defer unlock()
	return cleanUpLocked(ctx, file, out)
}

// lockLeftovers keeps 'zkelectd release' and a start from cleaning up at the same time: the later one would run the hooks
// again, and overwrite the session file of the daemon that the other has started. It locks the directory, since root must
// not leave a file there that the daemon's user cannot open.
func lockLeftovers(ctx context.Context, dir string) (unlock func(), err error) {
	lock, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot lock what a dead zkelectd left behind: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, cleanUpTimeout)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { lock.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			lock.Close()
			return nil, fmt.Errorf("cannot lock the directory %s: %w", dir, err)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			lock.Close()
			return nil, fmt.Errorf("another zkelectd is still cleaning up (it holds a lock on the directory %s): try again once it has ended", dir)
		}
	}
}

func cleanUpLocked(ctx context.Context, file string, out io.Writer) error {
	f, err := guard.ReadSessionFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // ended cleanly
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
