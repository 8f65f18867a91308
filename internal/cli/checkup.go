package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/daemon"
	"zkelectd/internal/host/hostcheck"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/doctor"
	"zkelectd/internal/sys/procinfo"
	"zkelectd/internal/zk"
)

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
	return &checkup{src: src, own: make(map[string]cluster.Node), measured: make(map[string]bool),
		facts: doctor.Facts{Version: version()}}
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
	c.findDaemon()
	c.facts.Host = c.guardFacts(c.askDaemon(ctx))
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
		out.Warnings = append(out.Warnings, "child.command is not set here: if the daemon has it, or --no-child, on "+
			"its command line, give doctor --no-child")
	default:
		out.Errors = append(out.Errors, separate(c.noWork)...)
	}
}

// hasWorkFlags reports whether the command line of a daemon says what its work is, or that it has none.
func hasWorkFlags(args []string) bool {
	return slices.ContainsFunc(args,
		func(arg string) bool { return arg == "--" || arg == "--no-child" || arg == "--no-child=true" })
}

// readConfig reads the configuration as a daemon does. If only files of groups are wrong, the others are checked all
// the same.
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
		if err := expiry(c.host.Config); err != nil {
			out.Warnings = append(out.Warnings, err.Error())
		}
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
	s, err := zk.InspectServer(ctx, operator.Access(c.host.Config, os.Getenv), name, address,
		c.host.Config.ZooKeeper.SessionTimeout)
	host := name
	if name != address {
		name += " (" + address + ")"
	}
	return doctor.Server{
		Name: name, Host: host, IPv6: strings.HasPrefix(address, "["), Err: err, Connect: s.Connect, Open: s.Open,
		Close: s.Close, Granted: s.Granted, Version: s.Version, Mode: s.Mode, StatusErr: s.StatusErr,
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
	c.facts.Session.Server, c.facts.Session.Foreign, c.facts.Session.ForeignErr = s.ForeignServers(ctx)
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
		g.host = c.host
		out.Err = cmp.Or(g.requireCreated(ctx), notCreated(c.host, g.name, g.paths.Root))
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
		if out.PolicyInGroup = g.cfg.Policy.LeftToGroup(); !out.PolicyInGroup {
			out.Drift = config.RulesDiff(g.cfg.Rules(), rec.Record.Rules)
		}
	}
	c.readMembers(ctx, out, g, snap)
}

// readStatus reads the status of one group, and returns what its slots share.
func (c *checkup) readStatus(ctx context.Context, out *doctor.Group, g group) (cluster.Snapshot, error) {
	read, err := g.readLeaders(ctx, false)
	if err != nil {
		return read.Shared, err
	}
	views := g.views(read)
	out.View, out.Eligible = views[0].Group, views[0].Eligible
	if g.manyLeaders() {
		addSlots(out, views)
	}
	return read.Shared, nil
}

// addSlots adds what the views of all slots say.
func addSlots(out *doctor.Group, views []groupStatus) {
	out.Slots = len(views)
	for _, v := range views {
		if v.State != string(cluster.CurrentReady) {
			out.Leaderless = append(out.Leaderless, v.Slot)
		}
		out.Severity = max(out.Severity, v.Severity)
		for _, problem := range v.Problems {
			if !slices.Contains(out.View.Problems, problem) {
				out.View.Problems = append(out.View.Problems, problem)
			}
		}
	}
}

// readMembers records what the members have published, and looks at their clocks.
func (c *checkup) readMembers(ctx context.Context, out *doctor.Group, g group, snap cluster.Snapshot) {
	drift := make(map[string]bool)
	for _, m := range out.View.Members {
		drift[m.Node] = m.Drift
	}
	var unknown []cluster.Member
	for _, m := range snap.Members {
		if m.Superseded || !m.Node.Readable() {
			continue
		}
		out.Members = append(out.Members, doctor.Member{Node: m.ID, Version: m.Node.Record.Version,
			PolicyInFile: m.Node.Record.PolicyDigest != "", PolicyDrift: drift[m.ID]})
		c.mu.Lock()
		if m.ID == g.cfg.Node.ID {
			c.own[g.name] = m.Node.Record
		}
		known := c.measured[m.ID]
		c.measured[m.ID] = true
		c.mu.Unlock()
		if !known {
			unknown = append(unknown, m)
		}
	}
	inParallel(len(unknown), readsAtOnce, func(i int) { c.readClock(ctx, g, unknown[i]) })
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
		out.ProgramErrs, out.ProgramsErr = local(ctx,
			func() ([]error, error) { return hostcheck.Group(ctx, one.Config), nil })
	}
}

// finishGroups adds what depends on the session, and what the daemon of this host has found, which may run as another
// user.
func (c *checkup) finishGroups() {
	for i, one := range c.host.Groups {
		out := &c.facts.Groups[i]
		out.Lease, out.Stop = one.Config.Election.Lease, one.Config.StopTimeout(c.facts.Session.Base)
		out.Reported = c.own[out.Name].Problems
	}
}
