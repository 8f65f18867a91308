package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/guard"
	"zkelectd/internal/operator"
	"zkelectd/internal/sys/harden"
	"zkelectd/internal/work/hook"
	"zkelectd/internal/zk"
)

// GuardOptions are those of [RunGuard].
type GuardOptions struct {
	Sources config.Sources
	Argv    []string // of the daemon, which the same program runs: it calls [Main]
	Respawn bool     // start the daemon again when it dies
	// Signals are those that came before RunGuard was called.
	Signals chan os.Signal
}

// RunGuard is the process that a user starts: the guard, which starts the daemon and the keeper, until the daemon has
// ended. It returns the exit status of this process. Before, it cleans up after a guard and a daemon that were killed
// together here.
func RunGuard(ctx context.Context, opt GuardOptions) (status int, err error) {
	from, applied := opt.Sources, config.AppliedFile(os.Getenv)
	last, err := readApplied(applied)
	if err != nil {
		return 0, err
	}
	if err := from.Read(); err != nil && last == nil {
		return 0, err
	}
	own, err := readSettings(from, last)
	if err == nil {
		err = operator.Access(own.host.Config, os.Getenv).Check()
	}
	if err != nil && last != nil {
		err = fmt.Errorf("with the configuration that was in force when zkelectd was killed: %w; to start with the "+
			"configuration files, remove %s", err, applied)
	}
	if err != nil {
		return 0, err
	}
	cfg := own.host.Config
	log, _, flush := NewLogger(cfg.Log)
	defer flush()
	disableCoreDumps(log, "guard")
	lock, err := takeSessionFile(ctx, cfg.SessionFile(os.Getenv), log)
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	if now, err := readApplied(applied); err != nil || !bytes.Equal(now, last) {
		return 0, errors.Join(errors.New("another zkelectd has ended while this one started, and with it the "+
			"configuration in force has changed: start it again"), err)
	}
	status, err = guard.Run(guard.Options{
		Path: "/proc/self/exe", Argv: opt.Argv, Respawn: opt.Respawn, Config: from.Content, ConfigOnce: from.Once,
		LastConfig: last, SessionLock: lock,
		Containment: guard.Containment(cfg.Child.Containment), Realtime: harden.RealtimePermitted(), Close: closeSession,
		Signals: opt.Signals, Log: log.With("node", cfg.Node.ID, "process", "guard"),
	})
	// With status 1 the daemon has given up by itself, and a higher one is that of a stop that took too long.
	if stopped := status == 0 || status > 1 && opt.Respawn; err == nil && stopped && applied != "" {
		os.Remove(applied) // the next start reads the files
	}
	return status, err
}

// disableCoreDumps keeps this process from leaving its secrets in a core.
func disableCoreDumps(log *slog.Logger, process string) {
	if err := harden.DisableCoreDumps(); err != nil {
		log.Warn("core dumps are not disabled: a core of this process would contain passwords and keys", "process",
			process, "err", err)
	}
}

// takeSessionFile locks a session file, and cleans up after a zkelectd that died here. It returns nil if there is no
// such file. An error means that another zkelectd uses it.
func takeSessionFile(ctx context.Context, file string, log *slog.Logger) (*os.File, error) {
	if file == "" {
		return nil, nil
	}
	lock, err := LockSessionFile(ctx, file)
	if err != nil {
		return nil, err
	}
	var result strings.Builder
	switch err := CleanUp(ctx, file, &result); {
	case errors.Is(err, guard.ErrOwnersMayRun): // the lock was removed while they held it
		lock.Close()
		return nil, fmt.Errorf("%s: %w", file, err)
	case err != nil && !errors.Is(err, ErrNothingLeft):
		log.Error("cannot clean up after a zkelectd that died here", "file", file, "err", err)
	case err == nil:
		log.Warn("cleaned up after a zkelectd that died here", "file", file, "result", strings.TrimSpace(result.String()))
	}
	return lock, nil
}

// closeSession releases the leaderships that a session held, and closes the session. Its owner and its work are dead.
// It returns the outcome of the releases, "" if none was held.
func closeSession(ctx context.Context, c guard.Credentials) (leadership string, err error) {
	e := zk.SessionHandle{Servers: c.Servers, Session: c.ID, Password: c.Password}
	if len(c.Access) > 0 {
		if err := json.Unmarshal(c.Access, &e.Access); err != nil {
			return "", fmt.Errorf("the stored access to ZooKeeper is damaged: %w", err)
		}
	}
	for _, tx := range c.Releases {
		release, damaged := cluster.DecodeTx(tx)
		e.Finals = append(e.Finals, &zk.FinalTx{Ops: release, Err: damaged})
	}
	err = zk.CloseSession(ctx, e)
	leadership = releaseOutcome(e.Finals)
	if errors.Is(err, zk.ErrNoSuchSession) {
		return leadership, nil
	}
	return leadership, err
}

// releaseOutcome describes what became of the releases of a session; "" if there were none.
func releaseOutcome(releases []*zk.FinalTx) string {
	var failed []error
	released := 0
	for _, r := range releases {
		if r.Applied {
			released++
		} else if r.Err != nil {
			failed = append(failed, r.Err)
		}
	}
	text := "released"
	if released > 1 {
		text = fmt.Sprintf("released in %d groups", released)
	}
	switch {
	case len(failed) == 0 && released == 0:
		return ""
	case len(failed) == 0:
		return text
	}
	failure := "not released, so that its successor may have to wait: " + errors.Join(failed...).Error()
	if released > 0 {
		return text + "; " + failure
	}
	return failure
}

// killTimeout bounds how long the rest of the work may take to die once it is killed.
const killTimeout = 5 * time.Second

// LockSessionFile locks a session file. It waits for the kill margin at most: that long the processes of a zkelectd
// that was killed may take to end. The timeout in the file is only what its writer said, but the wait changes nothing
// else.
func LockSessionFile(ctx context.Context, file string) (*os.File, error) {
	f, _ := guard.ReadSessionFile(file) // the process that has the lock reports the error
	return guard.LockSessionFile(ctx, file, cluster.KillMargin(f.Session.Timeout))
}

// ErrNothingLeft reports that the last zkelectd has left nothing behind.
var ErrNothingLeft = errors.New("nothing to clean up: the last zkelectd has closed its session")

// CleanUp cleans up after a dead zkelectd: it kills its work, runs its pending hooks and closes its session.
// The session is closed only if the kernel reports all of the work as dead, and if the hooks have succeeded. After
// another boot nothing is released, so that the successor waits: the work may be that of another host
// ([guard.SessionFile.OfAnotherBoot]). The caller must have locked the file: the hooks must not run twice, and nobody
// else's files may be removed.
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
	run := pendingHook(ctx)
	optional, err := f.RunPendingHooks(file, run)
	defer func() { // nothing waits for them, so they come last
		for _, spec := range optional {
			if err := run(spec); err != nil {
				fmt.Fprintf(out, "%v; this changes nothing else\n", err)
			}
		}
	}()
	if err != nil {
		return fmt.Errorf("the session is not closed: %w", errors.Join(unproven, err))
	}
	if unproven != nil {
		return fmt.Errorf("the session is left to expire: %w", unproven)
	}
	if f.OfAnotherBoot() {
		f.Session.Releases = nil
	}
	closing, cancel := context.WithTimeout(ctx, max(f.Session.Timeout, time.Second))
	defer cancel()
	leadership, err := closeSession(closing, f.Session)
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

// pendingHook returns a function that runs a post_stop or an on_change of a leadership that the dead daemon could not
// end (A5 in docs/protocol.md).
func pendingHook(ctx context.Context) func(guard.Spec) error {
	return func(spec guard.Spec) error {
		argv := append([]string{spec.Path}, spec.Argv[1:]...)
		h := hook.Hook{Setting: "the pending hook", Argv: argv, Env: spec.Env, Timeout: pendingHookTimeout}
		return h.Run(ctx, spec.Input)
	}
}
