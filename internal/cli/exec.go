package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/daemon"
	"zkelectd/internal/operator"
	"zkelectd/internal/work/oneshot"
)

// execOptions are the flags of exec that its daemon needs.
type execOptions struct{ daemon.JobRule }

const (
	execDaemonName = "exec-daemon"
	execJobName    = "exec-job"
	// jobsRoot is the default of --root: the znode above the groups of the jobs.
	jobsRoot = "/jobs"
)

const execHelp = `Exec runs a command on one of the hosts on which it is started at about the same time,
and exits with the command's exit status. On the other hosts it exits with 0 and prints
nothing. It needs no running daemon: it joins the group of the job, /jobs/JOB (--root), takes
part in one election, and leaves. Create that group once, by the command init with the root
of the job: exec exits with 125 if it does not exist. The connection to ZooKeeper, and the
host's name and site, are those of the configuration, as for other commands.

The command runs as the child of 'zkelectd run' does: on one host at a time, and no longer
than the lease. If ZooKeeper is lost, the command is stopped, then killed. The same
happens if any process of exec is killed, or if exec gets a SIGTERM, SIGINT, SIGHUP or
SIGQUIT; except those that were ignored when it was started, as by nohup. The command
gets the standard input of exec, unless that is a terminal, and has no other terminal.

--once-per keeps a host that starts late from repeating a run that another host has ended:
there is no other run for this time after the start of the last one, by the clock of the
ZooKeeper servers. Choose a time that is a little shorter than the interval of the job.
A run that has not ended, because the command was killed or its host has failed, is
repeated by the next exec, on whatever host; with --at-most-once it counts as a run.
If the servers' clock has gone back behind the start of the last run, exec does not run
the command, and exits with 125.
With --wait the other hosts stay for this time, and one of them runs the command if the
first host fails.

With --max N each host runs its own command, but at most N of them at once: the others wait
for their turn, in the order in which they have started, for as long as --wait says, without
it forever. Create the group with 'init --max N': another N is refused. On one host, give
each command its own --id. --once-per, --at-most-once and --skip-status have no effect there,
and are refused.

If exec cannot run the command, or the command was stopped, the exit status is 125, also
for a wrong command line; it is 126 or 127 if the command cannot be started, and 128+N if
signal N has killed it.`

func execCommand(c *command) {
	var opt execOptions
	var name, level string
	var skipStatus int
	c.Use = "exec -g JOB [flags] -- command args..."
	c.Short = "Run a job on one host of the fleet, such as a cron job that is installed on all of them"
	c.Long = execHelp
	// The exit statuses of other commands may be the job's.
	c.Args = endsWith(statusNotRun, func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return errors.New("the job is missing: its command goes after --")
		}
		return childArgs(cmd, args)
	})
	c.RunE = endsWith(statusNotRun, func(cmd *cobra.Command, args []string) error {
		if err := errors.Join(checkJob(name), opt.check(skipStatus), opt.checkMax(cmd)); err != nil {
			return err
		}
		h, err := loadHost(cmd)
		if err != nil {
			return err
		}
		cfg, err := opt.jobConfig(h.Config, execRoot(cmd, h)+"/"+name, level, args)
		if err != nil {
			return err
		}
		return opt.run(cfg, skipStatus)
	})
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exitError{statusNotRun, err} })
	config.RegisterConnection(c.Flags())
	config.RegisterNodeName(c.Flags())
	c.Flags().Lookup("root").Usage = "the znode above the groups of the jobs (default " + jobsRoot + ")"
	c.Flags().StringVarP(&name, "group", "g", "", "the name of the job, the same on all hosts")
	durationFlag(c, &opt.OncePer, "once-per", 30*time.Second, "no second run for this long after the start of one "+
		"that has ended")
	c.Flags().BoolVar(&opt.AtMostOnce, "at-most-once", false, "with --once-per: a run that was killed counts, too")
	durationFlag(c, &opt.Wait, "wait", 0, "how long to stay while another host runs the job, to replace it if it "+
		"fails; with --max, for its turn")
	c.Flags().IntVar(&opt.Max, "max", 0, "run the command on each host, on at most this many at once; the others wait")
	c.Flags().IntVar(&skipStatus, "skip-status", 0, "the exit status if the job is not run on this host because of a "+
		"run on another one")
	c.Flags().StringVar(&level, "log-level", "error", "debug, info, warn or error; info says why the job is not "+
		"run on this host")
	for _, flag := range []string{"group", "id", "site"} { // those of daemons are not meant
		if err := c.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions); err != nil {
			panic(err) // the flag exists
		}
	}
}

// endsWith makes the errors of a command exit with a status, unless they have one.
func endsWith(status int, f func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := f(cmd, args)
		if err == nil || errors.As(err, new(exitError)) {
			return err
		}
		return exitError{status, err}
	}
}

// checkJob returns an error unless a job can have that name.
func checkJob(name string) error {
	if name == "" {
		return errors.New("the name of the job is missing: add -g JOB, the same on all hosts")
	}
	if err := config.CheckName(name); err != nil {
		return fmt.Errorf("-g %q: the name of a job %w; --root is the znode above the jobs", name, err)
	}
	return nil
}

// execRoot returns the znode above the jobs. The zookeeper.root of the configuration is that of a daemon, which runs no
// jobs.
func execRoot(cmd *cobra.Command, h config.Host) string {
	if cmd.Flags().Changed("root") {
		return h.Config.ZooKeeper.Root
	}
	return jobsRoot
}

// checkMax checks --max and what it excludes. Without --wait there is no limit then.
func (o *execOptions) checkMax(cmd *cobra.Command) error {
	if !cmd.Flags().Changed("max") {
		return nil
	}
	if o.Max < 1 || o.Max > config.MaxSlots {
		return fmt.Errorf("--max %d is not between 1 and %d", o.Max, config.MaxSlots)
	}
	for _, flag := range []string{"once-per", "at-most-once", "skip-status"} {
		if cmd.Flags().Changed(flag) {
			return fmt.Errorf("--%s is for a job that one host runs for all; with --max each host runs its own: "+
				"leave out one of them", flag)
		}
	}
	o.OncePer = 0
	if !cmd.Flags().Changed("wait") {
		o.Wait = math.MaxInt64
	}
	return nil
}

// maxStatus is the largest exit status of a process.
const maxStatus = 255

// check refuses flags that would have another meaning than they seem to: no record would be compared, or the status
// would be cut.
func (o *execOptions) check(skipStatus int) error {
	switch {
	case o.OncePer < 0:
		return fmt.Errorf("--once-per %s is negative: use 0s for no limit", o.OncePer)
	case o.Wait < 0:
		return fmt.Errorf("--wait %s is negative: use 0s for not to wait", o.Wait)
	case skipStatus < 0 || skipStatus > maxStatus:
		return fmt.Errorf("--skip-status %d is not between 0 and %d", skipStatus, maxStatus)
	}
	return nil
}

// jobConfig returns the configuration of the daemon that runs a job: of the host's own it has the connection and the
// node.
func (o *execOptions) jobConfig(own config.Config, root, level string, job []string) (config.Config, error) {
	program, err := os.Executable()
	if err != nil {
		return config.Config{}, err
	}
	cfg, err := config.Load(config.Sources{})
	if err != nil {
		return config.Config{}, err
	}
	cfg.ZooKeeper, cfg.Node = own.ZooKeeper, own.Node
	cfg.ZooKeeper.Root, cfg.ZooKeeper.SessionFile = root, ""
	if cfg.ZooKeeper.ConnectTimeout == 0 {
		cfg.ZooKeeper.ConnectTimeout = operator.AnswerTimeout
	}
	if o.Max > 0 { // a slot for each job that may run; those that have waited for longer take one before this host
		cfg.Slots = config.Slots{Count: o.Max, PerNode: 1}
		cfg.Policy.Type = "first"
	}
	cfg.Node.MaxLeaders = 0
	cfg.Policy.Failback = cluster.FailbackManual // nobody replaces a host that runs the job
	cfg.Election.Settle = 0                      // so it is not worth a delay of each job that a better one might come
	cfg.Child.Command = append([]string{program, execJobName, "--"}, job...)
	cfg.Child.MaxRestarts = 0
	cfg.Child.Containment = own.Child.Containment
	cfg.Log.Level = level
	return config.Load(config.Sources{File: daemon.JobSource, Content: []byte(cfg.YAML())})
}

// run runs the job and returns its outcome as an error.
func (o *execOptions) run(cfg config.Config, skipStatus int) error {
	log, _, flush := daemon.NewLogger(cfg.Log)
	defer flush()
	rule, err := json.Marshal(o.JobRule)
	if err != nil {
		return err
	}
	r, err := daemon.RunJob(daemon.JobOptions{Config: cfg, Argv: []string{os.Args[0], execDaemonName, string(rule)},
		Log: log})
	if err != nil {
		return err
	}
	return outcome(r, log, skipStatus)
}

// outcome returns the result as the error of the command.
func outcome(r daemon.JobResult, log *slog.Logger, skipStatus int) error {
	switch {
	case r.Status != nil && *r.Status == 0:
		return nil
	case r.Status != nil:
		return exitError{*r.Status, nil}
	case r.Skipped != "":
		log.Info("the job is not run on this host", "reason", r.Skipped)
		if skipStatus == 0 {
			return nil
		}
		return exitError{skipStatus, nil}
	}
	return exitError{statusNotRun, fmt.Errorf("the job has not run to its end: %s", r.Failed)}
}

// execJobCommand is the child of exec's daemon: it starts the job once the daemon permits it.
func execJobCommand(c *command) {
	c.Use, c.Hidden, c.Args = execJobName+" -- command args...", true, cobra.MinimumNArgs(1)
	c.RunE = func(_ *cobra.Command, args []string) error {
		term, err := strconv.ParseInt(os.Getenv("ZKELECTD_TERM"), 10, 64)
		if err != nil {
			return fmt.Errorf("ZKELECTD_TERM: %w", err)
		}
		return oneshot.RunJob(term, os.Getenv("ZKELECTD_SLOT"), args)
	}
}

// execDaemonCommand is the daemon of exec, which gets the rule of the job as JSON.
func execDaemonCommand(c *command) {
	c.Use, c.Hidden, c.Args = execDaemonName+" RULE", true, cobra.ExactArgs(1)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		var rule daemon.JobRule
		if err := json.Unmarshal([]byte(args[0]), &rule); err != nil {
			return err
		}
		return withStatus(daemon.MainJob(cmd.Context(), rule, version()))
	}
}
