package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/guard"
	"zkelectd/internal/host"
	"zkelectd/internal/store"
	"zkelectd/internal/work/oneshot"
)

const (
	execDaemonName = "exec-daemon"
	execJobName    = "exec-job"
)

// execJobCommand is the child of exec's daemon: it starts the job once the daemon permits it.
func execJobCommand() *cobra.Command {
	return &cobra.Command{
		Use: execJobName + " -- command args...", Hidden: true, Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			term, err := strconv.ParseInt(os.Getenv("ZKELECTD_TERM"), 10, 64)
			if err != nil {
				return fmt.Errorf("ZKELECTD_TERM: %w", err)
			}
			return oneshot.RunJob(term, args)
		},
	}
}

// execDaemonCommand is the daemon of exec: it listens for its child, and leaves its result for its guard.
func execDaemonCommand() *cobra.Command {
	var opt execOptions
	cmd := &cobra.Command{Use: execDaemonName, Hidden: true, Args: cobra.NoArgs}
	opt.register(cmd)
	cmd.RunE = finalStatus(func(cmd *cobra.Command, _ []string) error {
		signals := make(chan os.Signal, 8)
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
		h, err := config.LoadHost(config.Sources{File: execSource, Content: guard.ReadStartConfig().Main})
		if err != nil {
			return err
		}
		log, level, flush := logger(h.Config)
		defer flush()
		result := guard.ResultFile()
		defer result.Close()
		g, err := connectGuard(log)
		if err != nil {
			return err
		}
		defer g.Close()
		defer exitWithGuard(g)()
		gate, err := oneshot.NewGate(jobInput())
		if err != nil {
			return err
		}
		defer gate.Close()
		d := &execDaemon{
			opt: opt, cfg: h.Config, gate: gate, log: log, file: result, signals: signals,
			host: host.New(host.Options{Config: h, Log: log, Level: level, Version: version(), Guard: g, CheckFiles: checkFiles}),
		}
		d.run(cmd.Context())
		return nil
	})
	return cmd
}

// jobInput returns the standard input for the job; nil if it is a terminal, because the job, which has its own session,
// would take from the shell what is typed there.
func jobInput() *os.File {
	if _, err := unix.IoctlGetTermios(int(os.Stdin.Fd()), unix.TCGETS); err == nil {
		return nil
	}
	return os.Stdin
}

// execDaemon is the host that runs a job at most once.
type execDaemon struct {
	opt     execOptions
	cfg     config.Config
	host    *host.Host
	gate    *oneshot.Gate
	log     *slog.Logger
	file    io.WriterAt // of the result
	signals chan os.Signal

	mu     sync.Mutex
	result execResult
	begun  bool
}

// run runs the host until the job has ended or is not to be run here.
func (d *execDaemon) run(ctx context.Context) {
	session, err := d.open(ctx)
	if err != nil {
		d.setResult(execResult{Failed: err.Error()})
		return
	}
	defer closeQuietly(ctx, session)
	watching, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { d.watch(watching, session) })
	running.Go(func() { d.serveJob(watching, session) })
	err = service{host: d.host, signals: d.signals}.run(ctx)
	cancel()
	d.gate.Close()
	running.Wait()
	var taken *store.TakenError
	switch {
	case errors.As(err, &taken):
		d.end(execResult{Skipped: "this host still runs the job: " + err.Error()})
	case err != nil:
		d.end(execResult{Failed: err.Error()})
	default:
		d.end(execResult{Failed: "it was stopped"})
	}
}

// open opens a session, unless a signal comes first.
func (d *execDaemon) open(ctx context.Context) (*store.Session, error) {
	opening, cancel := context.WithCancelCause(ctx)
	opened, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case sig := <-d.signals:
			cancel(fmt.Errorf("it was stopped by %s", sig))
		case <-opened:
		}
	}()
	session, err := openSession(opening, d.cfg)
	close(opened)
	<-watched
	stopped := context.Cause(opening)
	cancel(nil)
	switch {
	case stopped != nil && err == nil:
		closeQuietly(ctx, session)
		return nil, stopped
	case stopped != nil:
		return nil, stopped
	case err != nil:
		return nil, fmt.Errorf("%w; to use other servers, add --zk or --config", err)
	}
	return session, nil
}

// setResult sets the result, and leaves it for the guard. Only the first one counts.
func (d *execDaemon) setResult(r execResult) (first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.result != (execResult{}) {
		return false
	}
	d.result = r
	if err := r.write(d.file); err != nil {
		d.log.Error("the result of the job cannot be passed on", "result", r.reason(), "err", err)
	}
	return true
}

// end makes the host leave with a result. Only the first one counts.
func (d *execDaemon) end(r execResult) {
	if d.setResult(r) {
		d.host.Stop(r.reason())
	}
}

// reason is why the host leaves, as the history shows it.
func (r execResult) reason() string {
	switch {
	case r.Status != nil:
		return fmt.Sprintf("the job has ended with status %d", *r.Status)
	case r.Skipped != "":
		return "the job is not run on this host: " + r.Skipped
	}
	return "the job has not run to its end: " + r.Failed
}

// recordTimeout bounds how long the end of a job is tried to be recorded.
const recordTimeout = 10 * time.Second

// serveJob lets the child run the job once, and makes the host leave at its end.
func (d *execDaemon) serveJob(ctx context.Context, session *store.Session) {
	ledger := oneshot.Ledger{Conn: session, Paths: cluster.Paths{Root: d.cfg.ZooKeeper.Root}, Node: d.cfg.Node.ID}
	var begun int64
	ended, err := d.gate.Serve(func(term int64) error {
		begun = term
		d.mu.Lock()
		d.begun = true
		d.mu.Unlock()
		return ledger.Begin(ctx, term, d.opt.Rule)
	})
	var skipped *oneshot.SkippedError
	switch {
	case errors.Is(err, net.ErrClosed): // the host has left
	case errors.As(err, &skipped):
		d.end(execResult{Skipped: skipped.Reason})
	case err != nil:
		d.end(execResult{Failed: err.Error()})
	case d.stopping(ctx, ended):
		d.end(execResult{Failed: fmt.Sprintf("it was stopped, and has ended with status %d", ended.Status)})
	default:
		recording, cancel := context.WithTimeout(ctx, recordTimeout)
		defer cancel()
		if err := ledger.End(recording, begun, ended.Status); err != nil {
			d.log.Warn("the job has ended, but that is not recorded: another host may repeat it", "err", err)
		}
		d.end(execResult{Status: &ended.Status})
	}
}

// stopping reports whether the host was stopping the job when it ended. A signal may also be from somebody else: then it waits a
// little for the host to show that it stops.
func (d *execDaemon) stopping(ctx context.Context, ended oneshot.End) bool {
	looks := 1
	if ended.Signaled || ended.Status >= oneshot.StatusSignal {
		looks = 10
	}
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for range looks {
		if phase := d.host.Groups()[0].View().State(); phase != "leading" && phase != "starting" && phase != "declaring" {
			return true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return true
		}
	}
	return false
}

const (
	// watchInterval is how often a host that does not lead looks at the group.
	watchInterval = 100 * time.Millisecond
	// electionTimeout is how long, in addition to --wait, a host waits until some host leads.
	electionTimeout = 30 * time.Second
)

// watch makes the host leave if another one runs the job, or if nobody does so for long.
func (d *execDaemon) watch(ctx context.Context, session *store.Session) {
	began := time.Now()
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		d.mu.Lock()
		begun := d.begun
		d.mu.Unlock()
		if begun {
			return
		}
		if waited := time.Since(began); waited >= d.opt.Wait {
			if r := d.whoRuns(ctx, session, waited-d.opt.Wait > electionTimeout); r != (execResult{}) {
				if err := session.CheckOwner(ctx, d.cfg.ZooKeeper.Root); err != nil { // anyone may have written what it has read
					r = execResult{Failed: err.Error()}
				}
				d.end(r)
			}
		}
	}
}

// whoRuns returns why this host leaves: another one leads, or that is not known; zero if it stays. late is set if it does not wait any
// longer for a leader.
func (d *execDaemon) whoRuns(ctx context.Context, conn cluster.Reader, late bool) execResult {
	paths := cluster.Paths{Root: d.cfg.ZooKeeper.Root}
	hint := cluster.InGroup("'zkelectd status --root %s'", "", paths.Root)
	snap, err := store.ReadTerm(ctx, conn, paths, false)
	current := snap.Current
	switch other := current.Readable() && current.Record.Node != d.cfg.Node.ID; {
	case other && (late || current.Record.State == cluster.CurrentReady):
		return execResult{Skipped: current.Record.Node + " runs the job"}
	case !late:
		return execResult{}
	case err != nil:
		return execResult{Failed: fmt.Sprintf("it is not known which host runs it: %v", err)}
	case current.Exists && !current.Readable():
		return execResult{Failed: fmt.Sprintf("it is not known which host runs it: %v; see %s", current.Err, hint)}
	case !current.Exists:
		return execResult{Failed: fmt.Sprintf("no host was elected within %s: see %s", electionTimeout, hint)}
	}
	return execResult{}
}
