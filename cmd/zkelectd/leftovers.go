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

// workEnd is how long what is left of the work may take to die once it is killed.
const workEnd = 5 * time.Second

// settleMost is how long another process may take to settle the same leftovers.
const settleMost = time.Minute

// settleLeftovers ends what a zkelectd that is dead has left behind: its work, what undoes its leadership, and its session.
// The session is closed only if the kernel says that all of the work is dead, and if nothing is left undone.
func settleLeftovers(ctx context.Context, file string, out io.Writer) error {
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return nil // ended cleanly
	}
	unlock, err := lockLeftovers(ctx, filepath.Dir(file))
	if err != nil {
		return err
	}
	defer unlock()
	return settleAlone(ctx, file, out)
}

// lockLeftovers keeps 'zkelectd release' and a start from settling at once: the later one would run the hooks again, and
// write over the session file of the daemon that the other has started. It locks the directory, since root must not leave a
// file there that the daemon's user cannot open.
func lockLeftovers(ctx context.Context, dir string) (unlock func(), err error) {
	lock, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot lock what a dead zkelectd has left behind: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, settleMost)
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
			return nil, fmt.Errorf("another zkelectd still settles what was left behind (it holds a lock of the directory %s): try again once it has ended", dir)
		}
	}
}

func settleAlone(ctx context.Context, file string, out io.Writer) error {
	f, err := guard.ReadSessionFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // ended cleanly
	}
	if err != nil {
		return err
	}
	unproven := f.EnsureDead(workEnd)
	if unproven != nil && !errors.Is(unproven, guard.ErrWorkMayRun) {
		return fmt.Errorf("the session is not closed: %w", unproven)
	}
	// What may still run is all the more reason to take back what it had: nobody else will.
	if err := runUndo(ctx, f); err != nil {
		return fmt.Errorf("the session is not closed, as leadership is not undone: %w", errors.Join(unproven, err))
	}
	f.PendingHooks = nil
	if err := f.Write(file); err != nil {
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
	f.Session.File = file // wherever it was moved to
	guard.RemoveSessionFile(f.Session)
	fmt.Fprintf(out, "closed session 0x%x%s\n", f.Session.ID, leadership)
	return nil
}

// undoLimit bounds each command that undoes leadership, where no session is at stake any more.
const undoLimit = 10 * time.Second

// runUndo runs post_stop and on_change for a leadership that nobody could end (A5 in docs/protocol.md).
func runUndo(ctx context.Context, f guard.SessionFile) error {
	var errs []error
	for _, spec := range f.PendingHooks {
		argv := append([]string{spec.Path}, spec.Argv[1:]...)
		errs = append(errs, hook.Hook{Setting: "hooks", Argv: argv, Env: spec.Env, Timeout: undoLimit}.Run(ctx, spec.Input))
	}
	return errors.Join(errs...)
}
