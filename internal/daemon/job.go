package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/guard"
	"zkelectd/internal/host"
	"zkelectd/internal/operator"
	"zkelectd/internal/store"
	"zkelectd/internal/sys/harden"
	"zkelectd/internal/work/oneshot"
	"zkelectd/internal/zk"
)

// JobRule says when a job runs, and how long the other hosts stay.
type JobRule struct {
	oneshot.Rule
	Wait time.Duration
	// Max is how many hosts run their jobs at once, each when its turn comes; 0 for a job that one of them runs for all.
	Max int
}

// JobOptions are those of [RunJob].
type JobOptions struct {
	Config config.Config
	Argv   []string // of the daemon, which the same program runs: it calls [MainJob]
	Log    *slog.Logger
}

// JobSource names the configuration of a job in errors.
const JobSource = "the settings of zkelectd exec"

// RunJob is the guard of a job, until its daemon has ended. It returns what has become of the job.
func RunJob(opt JobOptions) (JobResult, error) {
	cfg := opt.Config
	if err := operator.Access(cfg, os.Getenv).Check(); err != nil {
		return JobResult{}, err
	}
	disableCoreDumps(opt.Log, "guard")
	// In memory: a full disk must not lose the status of the job.
	fd, err := unix.MemfdCreate("zkelectd-exec-result", unix.MFD_CLOEXEC)
	if err != nil {
		return JobResult{}, os.NewSyscallError("memfd_create", err)
	}
	result := os.NewFile(uintptr(fd), "zkelectd-exec-result")
	defer result.Close()
	_, err = guard.Run(guard.Options{
		Path: "/proc/self/exe", Argv: opt.Argv, Config: []byte(cfg.YAML()), ConfigOnce: true, Result: result,
		Containment: guard.Containment(cfg.Child.Containment), Realtime: harden.RealtimePermitted(),
		Close: closeSession, KeepInput: !isTerminal(os.Stdin),
		Log: opt.Log.With("node", cfg.Node.ID, "process", "guard"),
	})
	if err != nil {
		return JobResult{}, err
	}
	return readResult(result), nil
}

// MainJob is the daemon of a job: it listens for its child, and leaves its result for its guard. It returns the exit
// status, and why it is not 0.
func MainJob(ctx context.Context, rule JobRule, version string) (status int, err error) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	h, err := config.LoadHost(config.Sources{File: JobSource, Content: guard.ReadStartConfig().Main})
	if err != nil {
		return StatusFailed, err
	}
	log, level, flush := NewLogger(h.Config.Log)
	defer flush()
	result := guard.ResultFile()
	defer result.Close()
	g, err := connectGuard(log)
	if err != nil {
		return StatusFailed, err
	}
	defer g.Close()
	defer exitWithGuard(g)()
	gate, err := oneshot.NewGate()
	if err != nil {
		return StatusFailed, err
	}
	defer gate.Close()
	j := &job{
		rule: rule, cfg: h.Config, gate: gate, log: log, file: result, signals: signals,
		host: host.New(host.Options{
			Config: h, Log: log, Level: level, Version: version, Guard: g, Create: true, ExactSlots: true,
			CheckFiles: CheckFiles,
			StateDir:   config.StateDirectory(os.Getenv),
		}),
	}
	j.run(ctx)
	return StatusStopped, nil
}

// JobResult is what the daemon of a job tells the process that was started. One of the fields is set.
type JobResult struct {
	// Status is the exit status of the job.
	Status *int `json:"status,omitempty"`
	// Skipped says why the job was not run here, Failed why it was not run or was killed.
	Skipped string `json:"skipped,omitempty"`
	Failed  string `json:"failed,omitempty"`
}

func (r JobResult) write(file io.WriterAt) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(data, 0)
	return err
}

// maxResult bounds the size of a result, in bytes.
const maxResult = 1 << 20

// readResult returns the result of a daemon that has ended.
func readResult(file io.ReaderAt) JobResult {
	var r JobResult
	if err := json.NewDecoder(io.NewSectionReader(file, 0, maxResult)).Decode(&r); err != nil {
		return JobResult{Failed: "its daemon has ended without a result: see the messages above"}
	}
	return r
}

// isTerminal reports whether a file is a terminal. A job, which has its own session, gets none: it would take from the
// shell what is typed there.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// job is the host that runs a job at most once.
type job struct {
	rule    JobRule
	cfg     config.Config
	host    *host.Host
	gate    *oneshot.Gate
	log     *slog.Logger
	file    io.WriterAt // of the result
	signals chan os.Signal

	conn jobConn

	mu     sync.Mutex
	result JobResult
	begun  bool
}

// run runs the host until the job has ended or is not to be run here.
func (j *job) run(ctx context.Context) {
	session, err := j.open(ctx)
	if err != nil {
		j.end(JobResult{Failed: err.Error()})
		return
	}
	j.conn = jobConn{session: session, open: func(ctx context.Context) (*zk.Session, error) {
		return operator.Connect(ctx, j.cfg)
	}}
	defer func() { j.conn.close(ctx) }()
	watching, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { j.watch(watching) })
	running.Go(func() { j.serveJob(watching) })
	err = (&Daemon{host: j.host, signals: j.signals}).Run(ctx)
	cancel()
	j.gate.Close()
	running.Wait()
	var taken *store.TakenError
	var slots *host.SlotsError
	switch {
	case errors.As(err, &slots):
		j.end(JobResult{Failed: j.otherMax(slots.InForce)})
	case errors.As(err, &taken) && j.rule.Max > 0:
		j.end(JobResult{Failed: "this host already runs such a job, or waits for its turn; give each its own --id: " +
			err.Error()})
	case errors.As(err, &taken):
		j.end(JobResult{Skipped: "this host still runs the job: " + err.Error()})
	case err != nil:
		j.end(JobResult{Failed: err.Error()})
	default:
		j.end(JobResult{Failed: "it was stopped"})
	}
}

// open opens a session, unless a signal comes first.
func (j *job) open(ctx context.Context) (*zk.Session, error) {
	opening, cancel := context.WithCancelCause(ctx)
	opened, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case sig := <-j.signals:
			cancel(fmt.Errorf("it was stopped by %s", sig))
		case <-opened:
		}
	}()
	session, err := operator.Connect(opening, j.cfg)
	close(opened)
	<-watched
	stopped := context.Cause(opening)
	cancel(nil)
	switch {
	case stopped != nil && err == nil:
		operator.Disconnect(ctx, session)
		return nil, stopped
	case stopped != nil:
		return nil, stopped
	case err != nil:
		return nil, fmt.Errorf("%w; to use other servers, add --zk or --config", err)
	}
	if err := j.requireGroup(ctx, session); err != nil {
		operator.Disconnect(ctx, session)
		return nil, err
	}
	return session, nil
}

// otherMax says what to do about slots that are not those of --max.
func (j *job) otherMax(inForce cluster.SlotSize) string {
	root := j.cfg.ZooKeeper.Root
	advice := cluster.InGroup("'zkelectd slots %s --per-node 1 --root %s'", "", j.rule.Max, root) +
		" changes that while none of its jobs runs or waits"
	if inForce.PerNode == 1 {
		advice = fmt.Sprintf("use --max %d, as the other hosts do; %s", inForce.Count, advice)
	}
	return fmt.Sprintf("the group %s has %s, so --max %d is not its limit: %s", root, inForce, j.rule.Max, advice)
}

// requireGroup returns an error if the job's group does not exist: the host creates none. Nor does a group of the
// other kind do.
func (j *job) requireGroup(ctx context.Context, session *zk.Session) error {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	root := j.cfg.ZooKeeper.Root
	conn := session.Group(cluster.Paths{Root: root})
	defer conn.Close()
	kind := cluster.KindSingle
	if j.rule.Max > 0 {
		kind = cluster.KindSlots
	}
	recorded, err := store.ReadIdentity(ctx, conn, cluster.Paths{Root: root})
	switch {
	case err != nil:
		return err
	case recorded.Record.Kind == cluster.KindSlots && kind == cluster.KindSingle:
		return fmt.Errorf("the group %s is for jobs of which a limited number runs at once: add --max, or "+
			"use another name", root)
	case recorded.Record.Kind == cluster.KindSingle && kind == cluster.KindSlots:
		return fmt.Errorf("the group %s is for a job that one host runs for all: leave out --max, or use another "+
			"name, after %s", root,
			cluster.InGroup("'zkelectd init --root %s --max %s'", "", root+"-max", j.rule.Max))
	}
	return store.RequireCreated(ctx, conn, kind, store.MissingError{Root: root, Servers: j.cfg.ZooKeeper.Servers,
		Max: j.rule.Max})
}

// end makes the host leave with a result, which it leaves for the guard. Only the first one counts.
func (j *job) end(r JobResult) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.endLocked(r)
}

// giveUp is end unless the job has begun.
func (j *job) giveUp(r JobResult) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.begun {
		j.endLocked(r)
	}
}

func (j *job) endLocked(r JobResult) {
	if j.result != (JobResult{}) {
		return
	}
	j.result = r
	if err := r.write(j.file); err != nil {
		j.log.Error("the result of the job cannot be passed on", "result", r.reason(), "err", err)
	}
	j.host.Stop(r.reason())
}

// begin reports whether the job may begin: this host has not given up.
func (j *job) begin() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.begun = j.result == (JobResult{})
	return j.begun
}

// reason is why the host leaves, as the history shows it.
func (r JobResult) reason() string {
	switch {
	case r.Status != nil:
		return fmt.Sprintf("the job has ended with status %d", *r.Status)
	case r.Skipped != "":
		return "the job is not run on this host: " + r.Skipped
	}
	return "the job has not run to its end: " + r.Failed
}

// recordTimeout bounds how long the begin and the end of a job are tried to be recorded: a host that leads and does
// nothing keeps the others from it.
const recordTimeout = 10 * time.Second

// serveJob lets the child run the job once, and makes the host leave at its end.
func (j *job) serveJob(ctx context.Context) {
	ledger := oneshot.Ledger{Conn: &j.conn, Paths: cluster.Paths{Root: j.cfg.ZooKeeper.Root}, Node: j.cfg.Node.ID}
	var begun int64
	ended, err := j.gate.Serve(func(term int64, slot string) error {
		begun, ledger.Paths.Slot = term, slot
		if !j.begin() {
			return net.ErrClosed
		}
		recording, cancel := context.WithTimeout(ctx, j.cfg.ZooKeeper.SessionTimeout+recordTimeout)
		defer cancel()
		return ledger.Begin(recording, term, j.rule.Rule)
	})
	var skipped *oneshot.SkippedError
	switch {
	case errors.Is(err, net.ErrClosed): // the host has left
	case errors.As(err, &skipped):
		j.end(JobResult{Skipped: skipped.Reason})
	case err != nil:
		j.end(JobResult{Failed: err.Error()})
	case j.stopping(ctx, ended):
		j.end(JobResult{Failed: fmt.Sprintf("it was stopped, and has ended with status %d", ended.Status)})
	default:
		recording, cancel := context.WithTimeout(ctx, recordTimeout)
		defer cancel()
		if err := ledger.End(recording, begun, ended.Status); err != nil {
			j.log.Warn("the job has ended, but that is not recorded: another host may repeat it", "err", err)
		}
		j.end(JobResult{Status: &ended.Status})
	}
}

// stopping reports whether the host was stopping the job when it ended. A signal may also be from somebody else: then
// it waits a little for the host to show that it stops.
func (j *job) stopping(ctx context.Context, ended oneshot.End) bool {
	looks := 1
	if ended.Signaled || ended.Status >= oneshot.StatusSignal {
		looks = 10
	}
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for range looks {
		if !slices.ContainsFunc(j.host.Groups(), func(g *host.Group) bool {
			phase := g.View().State()
			return phase == "leading" || phase == "starting" || phase == "declaring"
		}) {
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

// watch makes the host leave if another one runs the job, or if nobody does so for long; with a limit, if its turn
// does not come.
func (j *job) watch(ctx context.Context) {
	began := time.Now()
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		j.mu.Lock()
		begun := j.begun
		j.mu.Unlock()
		if begun {
			return
		}
		if waited := time.Since(began); waited >= j.rule.Wait {
			if r := j.whyNot(ctx, &j.conn, waited-j.rule.Wait > electionTimeout); r != (JobResult{}) {
				if err := j.checkOwner(ctx); err != nil {
					r = JobResult{Failed: err.Error()}
				}
				if ctx.Err() != nil {
					return // the host has ended: its reason counts, and not what could not be read meanwhile
				}
				j.giveUp(r)
			}
		}
	}
}

// whyNot returns why this host leaves: another one runs the job, with a limit as many as may at once, or that is not
// known; zero if it stays. late is set if it does not wait any longer for a leader.
func (j *job) whyNot(ctx context.Context, conn cluster.Reader, late bool) JobResult {
	root := cluster.Paths{Root: j.cfg.ZooKeeper.Root}
	advice := cluster.InGroup("'zkelectd status --root %s'", "", root.Root)
	slots := []cluster.Paths{root}
	if j.rule.Max > 0 {
		slots = nil
		for i := range j.rule.Max {
			slots = append(slots, root.OfSlot(i))
		}
	}
	var others []string
	for _, paths := range slots {
		s, err := store.ReadTerm(ctx, conn, paths, false)
		current := s.Current
		if err == nil && current.Exists {
			err = current.Err
		}
		switch {
		case err != nil && late:
			return JobResult{Failed: fmt.Sprintf("it is not known which hosts run it: %v; see %s", err, advice)}
		case err != nil, current.Exists && current.Record.Node == j.cfg.Node.ID:
			return JobResult{}
		case current.Exists && (late || current.Record.State == cluster.CurrentReady):
			others = append(others, current.Record.Node)
		}
	}
	slices.Sort(others)
	switch all := strings.Join(others, ", "); {
	case len(others) == len(slots) && j.rule.Max == 0:
		return JobResult{Skipped: all + " runs the job"}
	case len(others) == len(slots):
		return JobResult{Failed: fmt.Sprintf("its turn has not come: %d jobs run, as many as may at once, on %s",
			len(others), all)}
	case late:
		return JobResult{Failed: fmt.Sprintf("no host was elected within %s: see %s", electionTimeout, advice)}
	}
	return JobResult{}
}
