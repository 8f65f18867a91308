package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/daemon"
	"zkelectd/internal/guard"
	"zkelectd/internal/host/hostcheck"
	"zkelectd/internal/operator/doctor"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/procinfo"
	"zkelectd/internal/web"
)

func doctorCommand(c *command) {
	c.Use = "doctor"
	c.Short = "Find out what is wrong on this host, in ZooKeeper and in the host's groups"
	c.Long = `Doctor checks the configuration, each ZooKeeper server, a write by the quorum, the
session timeout, clocks, permissions, the daemon of this host and what it may use, and
each group of the configuration. It prints a line for each check: ok, warn or fail, what
was seen, and what to do. What it could not look at is a warning.

Run it on the host, with sudo if only the daemon may read its configuration. It takes less
than 10 s. It changes nothing, apart from a znode that it creates and removes again.

Before you restore ZooKeeper's data from a backup, stop the daemons: see "Restore
ZooKeeper's data" in docs/operations.md.

The exit status is that of a monitoring plugin: 0 if all is ok, 1 for a warning, 2 if
something fails.`
	concernsHost(c.Command, "zookeeper.servers")
	output := c.outputFlag()
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		src, err := commandSources(cmd)
		if err != nil {
			return err
		}
		found := doctor.Diagnose(newCheckup(src).run(cmd.Context()))
		report := doctorReport{doctor.Worst(found), found}
		if err := report.print(cmd.OutOrStdout(), *output); err != nil {
			return err
		}
		return report.status()
	}
}

// doctorReport is the output of doctor.
type doctorReport struct {
	// Result is the worst result of the checks.
	Result doctor.Result    `json:"result"`
	Checks []doctor.Finding `json:"checks"`
}

func (r doctorReport) print(w io.Writer, output string) error {
	if output == "json" {
		return printJSON(w, r)
	}
	t := newTable(w)
	for _, f := range r.Checks {
		t.row(f.Result, f.What(), f.String())
	}
	return t.Flush()
}

// status returns an error with the exit status of a monitoring plugin.
func (r doctorReport) status() error {
	switch r.Result {
	case doctor.OK:
		return nil
	case doctor.Warn:
		return exitError{checkWarning, nil}
	}
	return exitError{checkCritical, nil}
}

// Limits of the parts of doctor, which must end within 10 s even if nothing answers.
const (
	doctorTimeout = 9 * time.Second
	serverTimeout = 3 * time.Second // for each server, and for the session
	localTimeout  = 2 * time.Second // for the file systems of this host, and for the daemon's endpoint
)

// errHangs is the error for a file system of this host that does not answer.
var errHangs = errors.New("a file system of this host does not answer")

// local returns what f returns, or an error if that takes long. f goes on then, until the file system answers.
func local[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	ctx, cancel := context.WithTimeout(ctx, localTimeout)
	defer cancel()
	done := make(chan answer, 1)
	go func() {
		value, err := f()
		done <- answer{value, err}
	}()
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, errHangs
	}
}

// findDaemon finds the daemon by its records in ZooKeeper, or without an answer from ZooKeeper by its session file.
func (c *checkup) findDaemon() {
	d := &c.facts.Daemon
	d.Node = c.host.Config.Node.ID
	if c.facts.Session.Err != nil {
		d.Pid, d.Err = guardBySessionFile(c.host.Config)
		return
	}
	d.Absent = fmt.Sprintf("no daemon %q is registered in ZooKeeper", d.Node)
	for _, g := range c.facts.Groups {
		rec, registered := c.own[g.Name]
		switch {
		case !registered && (g.Err == nil || g.NotJoined):
			d.NotIn = append(d.NotIn, g.Name)
		case !registered:
			d.Err = fmt.Errorf("the members of the group %s are not known", g.Name)
		case d.Pid == 0:
			d.Version = rec.Version
			d.Pid, d.Absent, d.Err = guardOf(rec)
		}
	}
	if d.Pid != 0 {
		d.Err = nil
	}
}

// guardOf returns the guard that a record names, if it runs on this host, and otherwise why it does not, or why that is
// not known.
func guardOf(rec cluster.Node) (pid int, absent string, err error) {
	if here := procinfo.Hostname(); rec.Host != here {
		return 0, fmt.Sprintf("the id %s is registered by the host %s; this is %s", rec.ID, rec.Host, here), nil
	}
	boot, err := procinfo.BootID()
	if err != nil {
		return 0, "", err
	}
	started, err := procinfo.StartTime(rec.PID)
	switch {
	case rec.Boot != boot:
		return 0, fmt.Sprintf("the id %s was registered before this host was restarted", rec.ID), nil
	case errors.Is(err, fs.ErrNotExist):
		return 0, "", fmt.Errorf("the registered process %d is not visible here: is it in a container?", rec.PID)
	case err != nil || started != rec.Started:
		return 0, fmt.Sprintf("the registered process %d has ended", rec.PID), nil
	}
	return rec.PID, "", nil
}

// guardBySessionFile returns the guard that the session file names.
func guardBySessionFile(cfg config.Config) (int, error) {
	path := cfg.SessionFile(os.Getenv)
	if path == "" {
		return 0, errors.New("ZooKeeper does not answer, and zookeeper.session_file is not set")
	}
	f, err := guard.ReadSessionFile(path)
	if err != nil {
		return 0, fmt.Errorf("ZooKeeper does not answer, and the session file cannot be read: %w", err)
	}
	for _, p := range f.Processes {
		if started, err := procinfo.StartTime(p.Pid); err == nil && started == p.Started && p.Role == "guard" {
			return p.Pid, nil
		}
	}
	return 0, errors.New("ZooKeeper does not answer, and the processes in the session file are gone")
}

// askDaemon asks the daemon whether it is ready, and in the groups whose policy enables failsafe mode whether that
// would work. It returns the daemon's view of the first group.
func (c *checkup) askDaemon(ctx context.Context) (first status.Response) {
	ctx, cancel := context.WithTimeout(ctx, localTimeout)
	defer cancel()
	d := &c.facts.Daemon
	endpoint, err := endpointOf(c.host)
	switch d.Endpoint = endpoint.Addr; {
	case d.Pid == 0:
		if d.Endpoint != "" && err == nil {
			answer := endpoint.Probe(ctx, "/readyz", "")
			if answer != nil && !errors.As(answer, new(*url.Error)) && !errors.Is(answer, web.ErrNotZkelectd) {
				d.Answer = answer.Error()
			}
		}
		err = errors.New("the daemon does not run here")
	case d.Endpoint == "":
		err = errors.New("http.listen is not set, so the daemon cannot be asked")
	default:
		if err == nil {
			err = endpoint.Probe(ctx, "/readyz", "")
		}
		d.EndpointErr = err
	}
	for i := range c.facts.Groups {
		out := &c.facts.Groups[i]
		out.Node = d.Node
		failsafe := out.View.Failsafe != nil || out.Err != nil
		if i > 0 && !failsafe {
			continue
		}
		var view status.Response
		readErr := err
		if err == nil {
			var body []byte
			if body, readErr = endpoint.Read(ctx, c.statusPath(i), maxAnswer); readErr == nil {
				readErr = json.Unmarshal(body, &view)
			}
		}
		if i == 0 {
			first = view
		}
		if failsafe {
			out.Failsafe, out.FailsafeErr = view.Failsafe, readErr
		}
	}
	return first
}

// statusPath returns where the daemon answers with its view of the i-th group.
func (c *checkup) statusPath(i int) string {
	if len(c.host.Groups) > 1 {
		return "/v1/groups/" + url.PathEscape(c.host.Groups[i].Name) + "/status"
	}
	return "/v1/status"
}

// maxAnswer bounds what is read from the daemon.
const maxAnswer = 4 << 20

// endpointOf returns the endpoint of the daemon of this host; without an address if there is none.
func endpointOf(h config.Host) (web.Endpoint, error) {
	file, _ := config.SecretFile(h.Config.HTTP.WebConfig, os.Getenv)
	settings, err := web.ReadConfig(file)
	address, addressErr := daemon.APIAddress(h.Config.HTTP, h.From.File)
	return web.Endpoint{Addr: address, Web: settings}, errors.Join(err, addressErr)
}

// guardFacts looks at the guard and at what the host gives to it.
func (c *checkup) guardFacts(view status.Response) doctor.Host {
	d, cfg := c.facts.Daemon, c.host.Config
	if d.Pid == 0 {
		err := d.Err
		if err == nil {
			err = errors.New("the daemon does not run here")
		}
		return doctor.Host{Err: err}
	}
	h := doctor.Host{
		Containment: cfg.Child.Containment, InUse: view.Containment, Unkillable: view.Unkillable, Groups: len(c.host.Groups),
		WatchdogDevice: view.WatchdogDevice,
	}
	h.Delegated, h.DelegatedErr = guard.Delegated(d.Pid)
	limits, err := hostcheck.Limits(d.Pid)
	h.Limits = doctor.Limits{Locked: limits.LockedMemory, Files: limits.OpenFiles, Processes: limits.Processes}
	h.Realtime = limits.RealtimePriority > 0
	var memErr error
	h.Locked, h.CanLock, memErr = hostcheck.Memory(d.Pid)
	h.LimitsErr = errors.Join(err, memErr)
	h.Tasks, h.TasksMax, h.TasksErr = hostcheck.Tasks(d.Pid)
	h.Scheduler, h.SchedulerErr = hostcheck.Scheduler(d.Pid)
	return h
}
