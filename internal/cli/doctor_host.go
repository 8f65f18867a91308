package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/guard"
	"zkelectd/internal/host/hostcheck"
	"zkelectd/internal/operator/doctor"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/procinfo"
	"zkelectd/internal/web"
)

// lookAtHost looks at the daemon of this host, at what it may use, and at its directories.
func (c *checkup) lookAtHost(ctx context.Context) {
	c.findDaemon()
	view := c.askDaemon(ctx)
	c.facts.Host = c.guardFacts(view)
	c.askFailsafe(ctx)
	c.lookAtDirectories(ctx)
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

// askDaemon asks the daemon whether it is ready, and returns its view of the first group.
func (c *checkup) askDaemon(ctx context.Context) (view status.Response) {
	d := &c.facts.Daemon
	cfg := c.host.Config
	d.Endpoint = cfg.HTTP.Listen
	if d.Endpoint == "" || d.Pid == 0 {
		return view
	}
	ctx, cancel := context.WithTimeout(ctx, localTimeout)
	defer cancel()
	endpoint, err := endpointOf(cfg)
	if err == nil {
		err = endpoint.Probe(ctx, "/readyz", "")
	}
	d.EndpointErr = err
	if err != nil {
		return view
	}
	if body, err := endpoint.Read(ctx, c.statusPath(0), maxAnswer); err == nil {
		_ = json.Unmarshal(body, &view) // what it does not say is not known
	}
	return view
}

// statusPath returns where the daemon answers with its view of the i-th group.
func (c *checkup) statusPath(i int) string {
	if len(c.host.Groups) > 1 {
		return "/v1/groups/" + url.PathEscape(c.host.Groups[i].Name) + "/status"
	}
	return "/v1/status"
}

// askFailsafe asks the daemon whether failsafe mode would work, in the groups whose policy enables it.
func (c *checkup) askFailsafe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, localTimeout)
	defer cancel()
	d, cfg := &c.facts.Daemon, c.host.Config
	endpoint, err := endpointOf(cfg)
	switch {
	case d.Pid == 0:
		err = errors.New("the daemon does not run here")
	case d.Endpoint == "":
		err = errors.New("http.listen is not set, so the daemon cannot be asked")
	case d.EndpointErr != nil:
		err = d.EndpointErr
	}
	for i := range c.facts.Groups {
		out := &c.facts.Groups[i]
		if out.Node = cfg.Node.ID; out.View.Failsafe == nil && out.Err == nil {
			continue
		}
		var view status.Response
		if out.FailsafeErr = err; err == nil {
			var body []byte
			if body, out.FailsafeErr = endpoint.Read(ctx, c.statusPath(i), maxAnswer); out.FailsafeErr == nil {
				out.FailsafeErr = json.Unmarshal(body, &view)
			}
		}
		out.Failsafe = view.Failsafe
	}
}

// maxAnswer bounds what is read from the daemon.
const maxAnswer = 4 << 20

// endpointOf returns the endpoint of the daemon of this host.
func endpointOf(cfg config.Config) (web.Endpoint, error) {
	file, _ := config.SecretFile(cfg.HTTP.WebConfig, os.Getenv)
	settings, err := web.ReadConfig(file)
	return web.Endpoint{Addr: cfg.HTTP.Listen, Web: settings}, err
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
		Containment: cfg.Child.Containment, InUse: view.Containment, Unkillable: view.Unkillable, Groups: len(c.host.Groups), Realtime: cfg.Guard.Realtime,
		WatchdogDevice: view.WatchdogDevice,
	}
	h.Delegated, h.DelegatedErr = guard.Delegated(d.Pid)
	limits, err := hostcheck.Limits(d.Pid)
	h.Limits = doctor.Limits{Locked: limits["Max locked memory"], Files: limits["Max open files"], Processes: limits["Max processes"]}
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

// lookAtDirectories looks at the directories that the daemon writes to.
func (c *checkup) lookAtDirectories(ctx context.Context) {
	cfg := c.host.Config
	session := doctor.Directory{Use: "session file", Path: filepath.Dir(cfg.SessionFile(c.daemonEnv))}
	if cfg.SessionFile(c.daemonEnv) == "" {
		session.Path, session.Err = "", errors.New("its directory is not known: zookeeper.session_file is not set, and the daemon has no RuntimeDirectory= that can be seen from here")
	}
	all := []doctor.Directory{session}
	for i := range all {
		if d := &all[i]; d.Err == nil {
			found, err := local(ctx, func() (hostcheck.Disk, error) { return hostcheck.DiskOf(d.Path) })
			d.Free, d.Total, d.FreeFiles, d.TotalFiles, d.Err = found.Free, found.Total, found.FilesFree, found.FilesTotal, err
		}
	}
	c.facts.Directories = all
}
