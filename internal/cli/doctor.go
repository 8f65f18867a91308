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
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/daemon"
	"zkelectd/internal/guard"
	"zkelectd/internal/host/hostcheck"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/doctor"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/procinfo"
	"zkelectd/internal/web"
	"zkelectd/internal/zk"
)

func doctorCommand(c *command) {
	var support bool
	var file string
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
something fails.

With --support it writes what a bug report needs into a .tar.gz: the version, the
configuration, its own output, and for each group of this host the status, history, policy,
requests and ACLs. It adds the end of the daemon's log in the journal, the limits and control
groups of its processes, and its metrics. README.txt lists the files, and what could not be
collected. If that is nothing about a daemon or a group, the exit status is 2.

Passwords, tokens, keys, the values of child.env and the arguments of programs are left
out. Names of nodes and hosts, reasons that people gave, and log messages remain: look
through the files before you send them. Only you can read the file.`
	concernsHost(c.Command, "zookeeper.servers")
	output := c.outputFlag()
	c.Flags().BoolVar(&support, "support", false, "collect what a bug report needs in one file, without secrets")
	c.Flags().StringVar(&file, "file", "", "with --support: the file to write, which must not exist (default: zkelectd-support-NODE-TIME.tar.gz)")
	c.MarkFlagsMutuallyExclusive("support", "output")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		src, err := commandSources(cmd)
		if err != nil {
			return err
		}
		if support {
			return writeSupport(cmd.Context(), cmd.OutOrStdout(), src, file)
		}
		if file != "" {
			return errors.New("--file is for --support")
		}
		report := examine(cmd.Context(), src)
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

// examine gathers the facts about this host, and returns the findings.
func examine(ctx context.Context, src config.Sources) doctorReport {
	return diagnosed(newCheckup(src).run(ctx))
}

func diagnosed(facts doctor.Facts) doctorReport {
	found := doctor.Diagnose(facts)
	return doctorReport{doctor.Worst(found), found}
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

// lookAtHost looks at the daemon of this host, at what it may use, and at its directory.
func (c *checkup) lookAtHost(ctx context.Context) {
	c.findDaemon()
	c.facts.Host = c.guardFacts(c.askDaemon(ctx))
	c.lookAtDirectory(ctx)
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

// guardOf returns the guard that a record names, if it runs on this host, and otherwise why it does not, or why that is not known.
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

// askDaemon asks the daemon whether it is ready, and in the groups whose policy enables failsafe mode whether that would
// work. It returns the daemon's view of the first group.
func (c *checkup) askDaemon(ctx context.Context) (first status.Response) {
	ctx, cancel := context.WithTimeout(ctx, localTimeout)
	defer cancel()
	d := &c.facts.Daemon
	endpoint, err := endpointOf(c.host)
	switch d.Endpoint = endpoint.Addr; {
	case d.Pid == 0:
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
	h.Limits = doctor.Limits{Locked: limits["Max locked memory"], Files: limits["Max open files"], Processes: limits["Max processes"]}
	h.Realtime = limits["Max realtime priority"] > 0
	var memErr error
	h.Locked, h.CanLock, memErr = hostcheck.Memory(d.Pid)
	h.LimitsErr = errors.Join(err, memErr)
	h.Tasks, h.TasksMax, h.TasksErr = hostcheck.Tasks(d.Pid)
	h.Scheduler, h.SchedulerErr = hostcheck.Scheduler(d.Pid)
	return h
}

// daemonEnv returns the value of a variable that systemd has set for the daemon.
func (c *checkup) daemonEnv(name string) string {
	if value := os.Getenv(name); value != "" || c.facts.Daemon.Pid == 0 {
		return value
	}
	value, err := hostcheck.Environment(c.facts.Daemon.Pid, name)
	if err != nil {
		return ""
	}
	return value
}

// lookAtDirectory looks at the directory of the session file.
func (c *checkup) lookAtDirectory(ctx context.Context) {
	d := doctor.Directory{Use: "session file"}
	if file := c.host.Config.SessionFile(c.daemonEnv); file == "" {
		d.Err = errors.New("its directory is not known: zookeeper.session_file is not set, and the daemon has no RuntimeDirectory= that can be seen from here")
	} else {
		d.Path = filepath.Dir(file)
		found, err := local(ctx, func() (hostcheck.Disk, error) { return hostcheck.DiskOf(d.Path) })
		d.Free, d.Total, d.FreeFiles, d.TotalFiles, d.Err = found.Free, found.Total, found.FilesFree, found.FilesTotal, err
	}
	c.facts.Directories = []doctor.Directory{d}
}

// checkup gathers the facts for doctor.
type checkup struct {
	src   config.Sources
	host  config.Host
	facts doctor.Facts
	// own are the records of this host's daemon, by group.
	own map[string]cluster.Node
	// noWork is the error of a configuration without leader-only work; nil if it has some, or needs none.
	noWork error

	mu sync.Mutex // of what several groups write
	// measured are the nodes whose clock has been looked at.
	measured map[string]bool
}

func newCheckup(src config.Sources) *checkup {
	return &checkup{src: src, own: make(map[string]cluster.Node), measured: make(map[string]bool), facts: doctor.Facts{Version: version()}}
}

// run gathers the facts.
func (c *checkup) run(ctx context.Context) doctor.Facts {
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	c.readConfig()
	if !c.facts.Config.Usable {
		return c.facts
	}
	c.facts.Groups = make([]doctor.Group, len(c.host.Groups))
	var parts sync.WaitGroup
	parts.Go(func() { c.askServers(ctx) })
	parts.Go(func() { c.readZooKeeper(ctx) })
	parts.Go(func() { c.findPrograms(ctx) })
	parts.Wait()
	c.finishGroups()
	c.lookAtHost(ctx)
	c.judgeNoWork()
	return c.facts
}

// judgeNoWork judges a configuration without work: the daemon may have its work, or --no-child, on its command line.
func (c *checkup) judgeNoWork() {
	out, running := &c.facts.Config, c.facts.Daemon
	switch {
	case c.noWork == nil:
	case running.Pid != 0 && hasWorkFlags(procinfo.Arguments(running.Pid)):
	case running.Pid != 0 || running.Err != nil && len(c.own) > 0:
		out.Warnings = append(out.Warnings, "child.command is not set here: if the daemon has it, or --no-child, on its command line, give doctor --no-child")
	default:
		out.Errors = append(out.Errors, separate(c.noWork)...)
	}
}

// hasWorkFlags reports whether the command line of a daemon says what its work is, or that it has none.
func hasWorkFlags(args []string) bool {
	return slices.ContainsFunc(args, func(arg string) bool { return arg == "--" || arg == "--no-child" || arg == "--no-child=true" })
}

// readConfig reads the configuration as a daemon does. If only files of groups are wrong, the others are checked all the same.
func (c *checkup) readConfig() {
	out := &c.facts.Config
	out.File = c.src.File
	h, err := config.LoadHost(c.src)
	out.Errors = separate(err)
	c.host, _, err = config.LoadCommand(c.src)
	out.Usable = err == nil
	if len(out.Errors) == 0 {
		out.Warnings = append(out.Warnings, h.Warnings...)
		for _, key := range h.Unset {
			out.Warnings = append(out.Warnings, fmt.Sprintf("%s is not set: the default is %s", key, h.Config.Setting(key)))
		}
		c.noWork = h.CheckWork()
		out.Errors = append(out.Errors, separate(h.CheckFailsafe())...)
	}
	out.Groups = len(c.host.Groups)
	if out.Usable {
		out.Errors = append(out.Errors, separate(daemon.CheckFiles(c.host.Config))...)
	}
}

// separate returns the errors of a configuration one by one.
func separate(err error) []error {
	if err == nil {
		return nil
	}
	var all []error
	for line := range strings.SplitSeq(err.Error(), "\n") {
		all = append(all, errors.New(line))
	}
	return all
}

// askServers looks at each address of each server by itself.
func (c *checkup) askServers(ctx context.Context) {
	z := c.host.Config.ZooKeeper
	all := make([][]doctor.Server, len(z.Servers))
	var asking sync.WaitGroup
	for i, name := range z.Servers {
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, serverTimeout)
			defer cancel()
			addresses, err := zk.ServerAddresses(ctx, name)
			if err != nil {
				all[i] = []doctor.Server{{Name: name, Err: err}}
				return
			}
			all[i] = make([]doctor.Server, len(addresses))
			var each sync.WaitGroup
			for j, address := range addresses {
				each.Go(func() { all[i][j] = c.askServer(ctx, name, address) })
			}
			each.Wait()
		})
	}
	asking.Wait()
	c.facts.Servers = slices.Concat(all...)
}

func (c *checkup) askServer(ctx context.Context, name, address string) doctor.Server {
	s, err := zk.InspectServer(ctx, operator.Access(c.host.Config, os.Getenv), name, address, c.host.Config.ZooKeeper.SessionTimeout)
	host := name
	if name != address {
		name += " (" + address + ")"
	}
	return doctor.Server{
		Name: name, Host: host, IPv6: strings.HasPrefix(address, "["), Err: err, Connect: s.Connect, Open: s.Open, Close: s.Close, Granted: s.Granted, Version: s.Version, Mode: s.Mode, StatusErr: s.StatusErr,
	}
}

// readZooKeeper opens a session, reads the groups, and writes once.
func (c *checkup) readZooKeeper(ctx context.Context) {
	cfg := c.host.Config
	cfg.ZooKeeper.ConnectTimeout = serverTimeout
	c.facts.Session.Asked = cfg.ZooKeeper.SessionTimeout
	s, err := connect(ctx, cfg, c.host.From)
	if err != nil {
		c.facts.Session.Err, c.facts.Write.Err, c.facts.ClocksErr = err, errNoSession, errNoSession
		for i := range c.facts.Groups {
			c.facts.Groups[i].Err = errNoSession
		}
		return
	}
	defer operator.Disconnect(ctx, s)
	c.facts.Session.Granted = s.Timeout()
	c.facts.Session.Base = cfg.ZooKeeper.LeaseBase(s.Timeout())
	c.facts.Session.Server, c.facts.Session.Foreign, _ = s.ForeignServers(ctx) // what was not answered is said of each server
	all := selection{session: s, host: c.host}
	for _, one := range c.host.Groups {
		all.groups = append(all.groups, groupAt(s, one.Config, one.Name, one.Config.ZooKeeper.Root))
	}
	reading, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	all.each(reading, func(ctx context.Context, i int, g group) {
		c.readGroup(ctx, &c.facts.Groups[i], g)
		if out := &c.facts.Groups[i]; out.NotJoined {
			out.RootErr = checkRoot(ctx, s, c.host, c.host.Groups[i])
		}
	})
	writing, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	c.write(writing, s, all.groups)
}

var errNoSession = errors.New("there is no session with ZooKeeper")

// write proves that a quorum accepts writes, in the first group that exists.
func (c *checkup) write(ctx context.Context, s *zk.Session, groups []group) {
	w := &c.facts.Write
	w.Err, w.Absent = errors.New("no group of this configuration exists yet, so there was nothing to write to"), true
	for i, g := range groups {
		if c.facts.Groups[i].NotJoined {
			continue
		}
		w.Absent = false
		if w.Err = s.AdoptACL(ctx, g.paths.Root); w.Err == nil {
			var proof zk.WriteProof
			proof, w.Err = s.ProveWrite(ctx, g.paths)
			w.Sent, w.Answered, w.Time = proof.Sent, proof.Answered, proof.Time
		}
		w.Denied = errors.Is(w.Err, cluster.ErrNoAuth)
		return
	}
}

// readGroup reads one group.
func (c *checkup) readGroup(ctx context.Context, out *doctor.Group, g group) {
	_, _, err := g.session.Get(ctx, g.paths.Election(), false)
	out.NotJoined, out.Denied = errors.Is(err, cluster.ErrNoNode), errors.Is(err, cluster.ErrNoAuth)
	if out.NotJoined {
		out.Err = notCreated(c.host, g.name, g.paths.Root)
		return
	}
	var snap cluster.Snapshot
	if err == nil {
		snap, err = c.readStatus(ctx, out, g)
	}
	if err != nil {
		out.Err, out.Denied = err, out.Denied || errors.Is(err, cluster.ErrNoAuth)
		return
	}
	audit, err := g.session.AuditACLs(ctx, g.paths)
	out.OpenTree, out.Mismatched, out.ACLErr = audit.Open, audit.Mismatched, err
	for _, m := range g.session.MemberACLs(snap, zk.ACL(g.cfg.ZooKeeper.ACL)) {
		if m.LockedOut {
			out.LockedOut = append(out.LockedOut, m.Node)
		}
	}
	if rec := snap.Policy; rec.Readable() {
		out.Policy = fmt.Sprintf("revision %d, published by %s", rec.Record.Revision, rec.Record.By)
		out.Drift = config.RulesDiff(rec.Record.Rules, g.cfg.Rules())
	}
	c.readMembers(ctx, out, g, snap)
}

// readStatus reads the status of one group, and returns what its slots share.
func (c *checkup) readStatus(ctx context.Context, out *doctor.Group, g group) (cluster.Snapshot, error) {
	read, err := g.readLeaders(ctx, false)
	if err == nil {
		err = g.slotsError(read)
	}
	if err != nil {
		return read.Shared, err
	}
	views := g.views(read)
	out.View, out.Eligible = views[0].Group, views[0].Eligible
	if !g.manyLeaders() {
		return read.Shared, nil
	}
	out.Slots = len(views)
	for _, v := range views {
		if v.Severity == status.SeverityCritical {
			out.Leaderless = append(out.Leaderless, v.Slot)
		}
		for _, problem := range v.Problems {
			if !slices.Contains(out.View.Problems, problem) {
				out.View.Problems = append(out.View.Problems, problem)
			}
		}
	}
	return read.Shared, nil
}

// readMembers records what the members have published, and looks at their clocks.
func (c *checkup) readMembers(ctx context.Context, out *doctor.Group, g group, snap cluster.Snapshot) {
	drift := make(map[string]bool)
	for _, m := range out.View.Members {
		drift[m.Node] = m.Drift
	}
	var reading errgroup.Group
	reading.SetLimit(readsAtOnce)
	for _, m := range snap.Members {
		if m.Superseded || !m.Node.Readable() {
			continue
		}
		out.Members = append(out.Members, doctor.Member{Node: m.ID, Version: m.Node.Record.Version, PolicyDrift: drift[m.ID]})
		c.mu.Lock()
		if m.ID == g.cfg.Node.ID {
			c.own[g.name] = m.Node.Record
		}
		known := c.measured[m.ID]
		c.measured[m.ID] = true
		c.mu.Unlock()
		if !known {
			reading.Go(func() error {
				c.readClock(ctx, g, m)
				return nil
			})
		}
	}
	_ = reading.Wait() // no errors
}

// readClock compares when a member registered by its own clock and by that of the server.
func (c *checkup) readClock(ctx context.Context, g group, m cluster.Member) {
	_, stat, err := g.session.Get(ctx, g.paths.Incarnation(m.Name), false)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch since := m.Node.Record.Since; {
	case errors.Is(err, cluster.ErrNoNode): // it has just left
	case err != nil:
		c.facts.ClocksErr = err
	default:
		c.facts.Clocks = append(c.facts.Clocks, doctor.Clock{Node: m.ID, Ahead: since.Sub(stat.Time)})
	}
}

// findPrograms checks whether this host has what the groups need.
func (c *checkup) findPrograms(ctx context.Context) {
	for i, one := range c.host.Groups {
		out := &c.facts.Groups[i]
		out.Name, out.Programs = one.Name, len(one.Config.Programs())
		if i > 0 && errors.Is(c.facts.Groups[i-1].ProgramsErr, errHangs) {
			out.ProgramsErr = errHangs // one wait is enough
			continue
		}
		out.ProgramErrs, out.ProgramsErr = local(ctx, func() ([]error, error) { return hostcheck.Group(ctx, one.Config), nil })
	}
}

// finishGroups adds what depends on the session, and what the daemon of this host has found, which may run as another user.
func (c *checkup) finishGroups() {
	for i, one := range c.host.Groups {
		out := &c.facts.Groups[i]
		out.Lease, out.Stop = one.Config.Election.Lease, one.Config.StopTimeout(c.facts.Session.Base)
		out.Reported = c.own[out.Name].Problems
	}
}
