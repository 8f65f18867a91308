package doctor

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
)

// healthy are the facts of a host without any problem.
func healthy() Facts {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	server := func(name, mode string) Server {
		return Server{Name: name, Connect: time.Millisecond, Open: 5 * time.Millisecond, Close: 5 * time.Millisecond, Granted: 10 * time.Second, Version: "3.8.0", Mode: mode}
	}
	standby := func(node string) status.Member {
		return status.Member{Node: node, Standby: &cluster.Standby{State: cluster.StandbyWarm}}
	}
	return Facts{
		Version: "v1", Config: Config{File: "/etc/zkelectd.yaml", Groups: 1, Usable: true},
		Servers: []Server{server("zk1", "leader"), server("zk2", "follower"), server("zk3", "follower")},
		Session: Session{Asked: 10 * time.Second, Granted: 10 * time.Second, Base: 10 * time.Second},
		Write:   Write{Sent: now, Answered: now.Add(10 * time.Millisecond), Time: now.Add(5 * time.Millisecond)},
		Daemon:  Daemon{Node: "n1", Pid: 42, Version: "v1", Endpoint: "unix:/run/zkelectd/api.sock"},
		Host: Host{
			Containment: "auto", Delegated: true, InUse: "cgroup", Limits: Limits{Locked: Unlimited, Files: 1 << 19, Processes: Unlimited}, Locked: 1 << 24,
			Groups: 1, Tasks: 30, TasksMax: 4000,
		},
		Clocks: []Clock{{"n1", time.Millisecond}, {"n2", -time.Millisecond}},
		Groups: []Group{{
			Name: "billing", Stop: 2 * time.Second, Programs: 1, Eligible: 2, Policy: "revision 1, published by n1",
			View:    status.Group{State: "READY", Leader: "n1", Term: 7, Members: []status.Member{standby("n1"), standby("n2")}, Expected: 2},
			Members: []Member{{Node: "n1", Version: "v1"}, {Node: "n2", Version: "v1"}},
		}},
	}
}

// version gives all servers the same version.
func (f *Facts) version(v string) {
	for i := range f.Servers {
		f.Servers[i].Version = v
	}
}

func TestHealthyHost(t *testing.T) {
	t.Parallel()
	found := Diagnose(healthy())
	for _, f := range found {
		if f.Result != OK || f.Advice != "" || f.Seen == "" || f.Check == "" {
			t.Errorf("%+v", f)
		}
	}
	if len(found) < 20 || Worst(found) != OK {
		t.Errorf("%d findings, the worst is %s", len(found), Worst(found))
	}
}

// A daemon that answers, but is not registered, runs: its reason says what to do.
func TestADaemonThatWaitsRuns(t *testing.T) {
	t.Parallel()
	f := healthy()
	f.Daemon = Daemon{Node: "n1", Absent: "no daemon is registered", Answer: "there is no group at /clustr"}
	for _, found := range Diagnose(f) {
		if found.Check == "daemon" && (found.Result != Fail || !strings.Contains(found.Seen, "runs, but is not registered: there is no group")) {
			t.Errorf("%+v", found)
		}
	}
}

// A group without a child has no time to stop it.
func TestGroupWithoutAChild(t *testing.T) {
	t.Parallel()
	f := healthy()
	f.Groups[0].Stop = 0
	for _, found := range Diagnose(f) {
		if found.Check == "timing" && (found.Result != OK || !strings.HasSuffix(found.Seen, "; there is no child to stop")) {
			t.Errorf("%+v", found)
		}
	}
}

// changes are faults, each with the only line that it changes, and a part of the new one.
var changes = map[string]struct {
	change func(*Facts)
	what   string
	result Result
	text   string
}{
	"an invalid setting": {func(f *Facts) { f.Config.Errors = []error{errors.New("child.dri: no such setting")} }, "configuration", Fail, "child.dri"},
	"a warning":          {func(f *Facts) { f.Config.Warnings = []string{"node.id is not set"} }, "configuration", Warn, "node.id"},
	"a server that is down": {func(f *Facts) {
		f.Servers = append(f.Servers, Server{Name: "zk4", Err: errors.New("refused")}, f.Servers[0])
	}, "server zk4", Fail, "refused"},
	"an address that this host cannot reach": {func(f *Facts) {
		f.Servers[2].Host = "zk3:2181"
		f.Servers = append(f.Servers, Server{Name: "zk3 ([::1]:2181)", Host: "zk3:2181", IPv6: true, Err: errors.New("unreachable")})
	}, "server zk3 ([::1]:2181)", Warn, "unreachable; zk3:2181 serves sessions at another address"},
	"an address that hangs up": {func(f *Facts) {
		f.Servers[2].Host = "zk3:2181"
		f.Servers = append(f.Servers, f.Servers[0], Server{Name: "zk3 ([::1]:2181)", Host: "zk3:2181", IPv6: true, Connect: 1, Err: io.EOF})
	}, "server zk3 ([::1]:2181)", Fail, "EOF"},
	"a slow server":                {func(f *Facts) { f.Servers[1].Close = 2 * time.Second }, "server zk2", Warn, "that is much"},
	"a server of another ensemble": {func(f *Facts) { f.Session.Server, f.Session.Foreign = "zk1:2181", []string{"zk2:2181"} }, "ensemble", Fail, "zk1:2181 and zk2:2181 are of different ensembles"},
	"servers that nobody compared": {func(f *Facts) { f.Session.ForeignErr = io.EOF }, "ensemble", Warn, "could not be checked because EOF"},
	"a server of other version":    {func(f *Facts) { f.Servers[1].Version = "3.9.1" }, "ensemble", Warn, "different versions"},
	"servers without fixes":        {func(f *Facts) { f.version("3.7.1") }, "ensemble", Warn, "ZooKeeper 3.7.1 of zk1 gets no fixes"},
	"servers without TLS":          {func(f *Facts) { f.version("3.4.13") }, "ensemble", Warn, "ZooKeeper 3.4.13 of zk1 has no TLS, and gets no fixes"},
	"servers from the future":      {func(f *Facts) { f.version("3.10.0") }, "ensemble", Warn, "ZooKeeper 3.10.0 of zk1 is newer than"},
	"servers of others":            {func(f *Facts) { f.version("ClickHouse Keeper v26.7.5.10") }, "ensemble", Fail, "zk1 is not ZooKeeper but ClickHouse Keeper v26.7.5.10"},
	"servers of a strange version": {func(f *Facts) { f.version("main") }, "ensemble", Warn, "the version of zk1, zk2, zk3 is not known"},
	"other limits of a server":     {func(f *Facts) { f.Servers[1].Granted = 4 * time.Second }, "ensemble", Warn, "different session timeouts: 10s, 4s"},
	"a shorter session timeout":    {func(f *Facts) { f.Session.Granted = 9 * time.Second; f.Session.Base = 9 * time.Second }, "session timeout", Warn, "9s instead of 10s"},
	"no permission to write":       {func(f *Facts) { f.Write.Err, f.Write.Denied = errors.New("no permission"), true }, "quorum", Warn, "could not be checked because no permission"},
	"no quorum":                    {func(f *Facts) { f.Write.Err = errors.New("timeout") }, "quorum", Fail, "a write failed: timeout"},
	"a clock that is ahead":        {func(f *Facts) { f.Write.Time = f.Write.Sent.Add(-time.Minute) }, "clock", Warn, "1m0s ahead"},
	"a member's clock":             {func(f *Facts) { f.Clocks[1].Ahead = -5 * time.Second }, "members' clocks", Warn, "n2 5s behind"},
	"a cold standby": {func(f *Facts) {
		f.Groups[0].View.Members[1].Standby = &cluster.Standby{State: cluster.StandbyCold, Reason: "the child exited with status 1"}
	}, "standby billing", Warn, "that of n2 is cold: the child exited with status 1"},
	"an unknown clock":        {func(f *Facts) { f.ClocksErr = errors.New("no answer") }, "members' clocks", Warn, "no answer"},
	"another binary":          {func(f *Facts) { f.Daemon.Version = "v0" }, "daemon n1", Warn, "runs v0, but this binary is v1"},
	"a group without it":      {func(f *Facts) { f.Daemon.NotIn = []string{"billing"} }, "daemon n1", Fail, "not registered in billing"},
	"no answer":               {func(f *Facts) { f.Daemon.EndpointErr = errors.New("no answer") }, "endpoint unix:/run/zkelectd/api.sock", Fail, "no answer"},
	"no endpoint":             {func(f *Facts) { f.Daemon.Endpoint = "" }, "endpoint", Warn, "http.listen is not set"},
	"the keeper alone":        {func(f *Facts) { f.Host.InUse = "keeper" }, "containment", Warn, "the keeper alone"},
	"no delegated group":      {func(f *Facts) { f.Host.InUse, f.Host.Delegated = "", false }, "containment", Warn, "no control group is delegated"},
	"an unkillable process":   {func(f *Facts) { f.Host.Unkillable = "process 7" }, "containment", Fail, "process 7"},
	"a limit of memory":       {func(f *Facts) { f.Host.Limits.Locked = 8 << 20 }, "locked memory", Warn, "may lock 8.0 MiB"},
	"few files":               {func(f *Facts) { f.Host.Limits.Files = 256 }, "open files", Warn, "256 files"},
	"few processes":           {func(f *Facts) { f.Host.TasksMax = 40 }, "processes", Warn, "30 tasks of at most 40"},
	"unknown limits of tasks": {func(f *Facts) { f.Host.TasksErr = errors.New("no cgroup") }, "processes", Warn, "could not be checked because no cgroup"},
	"a device that is not used": {func(f *Facts) {
		f.Host.WatchdogDevice = &status.WatchdogDevice{Device: "/dev/watchdog", State: status.DeviceUnusable, Reason: "busy"}
	}, "watchdog device /dev/watchdog", Warn, "nothing resets this host if it stands still: busy"},
	"a required device": {func(f *Facts) {
		f.Host.WatchdogDevice = &status.WatchdogDevice{Device: "/dev/watchdog", State: status.DeviceUnusable, Required: true, Reason: "busy"}
	}, "watchdog device /dev/watchdog", Fail, "does not lead: busy"},
	"a weak device": {func(f *Facts) {
		f.Host.WatchdogDevice = &status.WatchdogDevice{Device: "/dev/watchdog", State: status.DeviceReady, Identity: "softdog", Warnings: []string{"is software"}}
	}, "watchdog device /dev/watchdog", Warn, "softdog: is software"},
	"no real-time priority":   {func(f *Facts) { f.Host.Realtime, f.Host.Scheduler = true, "SCHED_OTHER" }, "real-time priority", Warn, "SCHED_OTHER"},
	"a long stop":             {func(f *Facts) { f.Groups[0].Stop = time.Minute }, "timing billing", Fail, "stop"},
	"a long stop for a lease": {func(f *Facts) { f.Groups[0].Lease = 900 * time.Millisecond }, "timing billing", Fail, "at most 750ms"},
	"a missing program":       {func(f *Facts) { f.Groups[0].ProgramErrs = []error{errors.New("child.command: /x does not exist")} }, "programs billing", Fail, "/x does not exist"},
	"what the daemon reports": {func(f *Facts) { f.Groups[0].Reported = []string{"child.dir: no"} }, "programs billing", Fail, "child.dir: no"},
	"an open tree":            {func(f *Facts) { f.Groups[0].OpenTree = true }, "permissions billing", Warn, "anyone"},
	"another ACL":             {func(f *Facts) { f.Groups[0].Mismatched = []string{"/b/policy"} }, "permissions billing", Warn, "/b/policy"},
	"a member without access": {func(f *Facts) { f.Groups[0].LockedOut = []string{"n2"} }, "permissions billing", Fail, "n2"},
	"no leader":               {func(f *Facts) { f.Groups[0].View.State, f.Groups[0].View.NoLeader = "NONE", "all are cordoned" }, "leader billing", Fail, "no leader: all are cordoned"},
	"every member has failed": {func(f *Facts) { f.Groups[0].View.Failing = "every member that could lead has failed" }, "leader billing", Fail, "every member that could lead"},
	"a takeover":              {func(f *Facts) { f.Groups[0].View.State = "PROGRESS" }, "leader billing", Warn, "n1 is taking over"},
	"a problem":               {func(f *Facts) { f.Groups[0].View.Problems = []string{"the roster is damaged"} }, "leader billing", Warn, "the roster is damaged"},
	"a takeover in a slot":    {func(f *Facts) { f.Groups[0].Slots, f.Groups[0].Leaderless = 4, []string{"3"} }, "leader billing", Warn, "1 of 4 slots have no READY leader: 3"},
	"a slot without leader": {func(f *Facts) {
		f.Groups[0].Slots, f.Groups[0].Leaderless, f.Groups[0].Severity = 4, []string{"3"}, status.SeverityCritical
	}, "leader billing", Fail, "1 of 4 slots have no READY leader: 3"},
	"every member has failed in a slot": {func(f *Facts) {
		f.Groups[0].Slots, f.Groups[0].Severity = 4, status.SeverityCritical
		f.Groups[0].View.Problems = []string{"n1 leads, but may fail again"}
	}, "leader billing", Fail, "each of 4 slots has a READY leader, but: n1 leads, but may fail again"},
	"a lost member": {func(f *Facts) {
		f.Groups[0].View.Expected, f.Groups[0].View.Absent = 3, []status.AbsentMember{{Node: "n3", State: "lost"}}
	}, "members billing", Warn, "2 of 3 expected; lost: n3"},
	"a member of other version": {func(f *Facts) { f.Groups[0].Members[1].Version = "v0" }, "versions billing", Warn, "v0: n2; v1: n1"},
	"a group that is stuck in failsafe mode": {func(f *Facts) {
		f.Groups[0].View.Failsafe = &status.GroupFailsafe{WaitsFor: []string{"n8", "n9"}, Stuck: true}
	}, "failsafe mode billing", Fail, "none of these nodes, which can say otherwise, is registered with the state directory that it had: n8, n9"},
	"a member that would not promise": {func(f *Facts) {
		f.Groups[0].View.Failsafe = &status.GroupFailsafe{Members: []string{"n2"}}
		f.Groups[0].Node, f.Groups[0].View.Members = "n1", []status.Member{{Node: "n1"}, {Node: "n2"}}
		f.Groups[0].Failsafe = &status.Failsafe{Unready: map[string]string{"n2": "no answer"}}
	}, "failsafe mode billing", Warn, "n2 would not promise, so without ZooKeeper the leader would stop: no answer"},
	"a daemon without failsafe mode": {func(f *Facts) {
		f.Groups[0].View.Failsafe = &status.GroupFailsafe{}
	}, "failsafe mode billing", Warn, "the daemon of this host takes no part"},
	"a daemon that does not say": {func(f *Facts) {
		f.Groups[0].View.Failsafe = &status.GroupFailsafe{}
		f.Groups[0].FailsafeErr = errors.New("no endpoint")
	}, "failsafe mode billing", Warn, "could not be checked because no endpoint"},
	"no key for failsafe mode": {func(f *Facts) {
		f.Groups[0].View.Failsafe = &status.GroupFailsafe{Members: []string{"n2"}}
		f.Groups[0].Failsafe = &status.Failsafe{Enabled: true, Problem: "the tree is open"}
	}, "failsafe mode billing", Warn, "it would not work if this host led: the tree is open"},
	"another policy here":          {func(f *Facts) { f.Groups[0].Drift = []string{"policy.type: priority -> expr"} }, "policy billing", Warn, "policy.type"},
	"another policy on a member":   {func(f *Facts) { f.Groups[0].Members[1].PolicyDrift = true }, "policy billing", Warn, "n2"},
	"policy.source differs":        {func(f *Facts) { f.Groups[0].Members[1].PolicyInFile = true }, "policy billing", Warn, "policy.source is files on n2, and group on n1"},
	"a group that cannot be read":  {func(f *Facts) { f.Groups[0].ACLErr = errors.New("no answer") }, "permissions billing", Warn, "could not be checked because no answer"},
	"programs on a disk that hang": {func(f *Facts) { f.Groups[0].ProgramsErr = errors.New("it hangs") }, "programs billing", Warn, "could not be checked because it hangs"},
}

// Each fault changes the line that it is about, and no other.
func TestEachFaultChangesItsLine(t *testing.T) {
	t.Parallel()
	for name, c := range changes {
		f := healthy()
		c.change(&f)
		var changed []Finding
		for _, found := range Diagnose(f) {
			if found.Result != OK {
				changed = append(changed, found)
			}
		}
		if len(changed) == 0 {
			t.Errorf("%s: nothing is found", name)
			continue
		}
		if name == "no permission to write" || name == "no quorum" { // then there is nothing to compare the clock with
			changed = slices.DeleteFunc(changed, func(f Finding) bool { return f.Check == "clock" })
		}
		if len(changed) != 1 || changed[0].What() != c.what || changed[0].Result != c.result || !strings.Contains(changed[0].String(), c.text) || changed[0].Seen == "" {
			t.Errorf("%s: %+v", name, changed)
		}
	}
}

// What could not be looked at is never ok.
func TestAbsenceProvesNothing(t *testing.T) {
	t.Parallel()
	bad := errors.New("no answer")
	f := Facts{Version: "v1", Config: Config{Usable: true, Groups: 1}, Servers: []Server{{Name: "zk1", Err: bad}}, Session: Session{Err: bad}, Write: Write{Err: bad}, ClocksErr: bad}
	f.Daemon.Err, f.Host.Err = bad, bad
	f.Groups = []Group{{Name: "billing", Err: bad, ProgramsErr: bad}}
	for _, found := range Diagnose(f) {
		if found.Result == OK && found.Check != "configuration" {
			t.Errorf("%+v", found)
		}
	}
	f = Facts{Config: Config{Errors: []error{bad}}}
	if found := Diagnose(f); len(found) != 2 || found[0].Result != Fail || found[1].Result != Warn {
		t.Errorf("an unusable configuration: %+v", found)
	}
}

func TestGroupsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for what, g := range map[string]Group{
		"fail permissions":             {Err: errors.New("not authorized"), Denied: true},
		"fail permissions of the root": {Err: errors.New("not joined"), NotJoined: true, RootErr: errors.New("not joined: no permission")},
		"fail members":                 {Err: errors.New("no daemon has joined it yet"), NotJoined: true},
		"warn group":                   {Err: errors.New("no answer")},
	} {
		f := healthy()
		g.Name = "billing"
		f.Groups = []Group{g}
		found := Diagnose(f)
		last := found[len(found)-1]
		if !strings.HasPrefix(what, string(last.Result)+" "+last.Check) || !strings.Contains(last.Seen, g.Err.Error()) {
			t.Errorf("%s: %+v", what, last)
		}
	}
}

// The daemon says that it leads by promises although the group cannot be read.
func TestALeaderWithoutZooKeeperIsFound(t *testing.T) {
	f := healthy()
	f.Groups[0].Err = errors.New("there is no session with ZooKeeper")
	f.Groups[0].Failsafe = &status.Failsafe{Enabled: true, Active: true, Asks: []string{"n2", "n3"}}
	if !slices.ContainsFunc(Diagnose(f), func(found Finding) bool {
		return found.Result == Warn && strings.Contains(found.String(), "ACTIVE: this host leads without ZooKeeper, by the promises of n2, n3")
	}) {
		t.Error("it is not found")
	}
}

// What was published last is newer than any file: the advice never puts an older policy in force again.
func TestAdviceAboutThePolicyLeadsForward(t *testing.T) {
	t.Parallel()
	for name, g := range map[string]Group{
		"this file differs": {Name: "billing", Policy: "revision 2, published by n2", Drift: []string{"policy.type: priority -> first"}},
		"a member's":        {Name: "billing", Policy: "revision 2, published by n2", Members: []Member{{Node: "n1", PolicyDrift: true}}},
	} {
		f := g.policy()
		if !strings.HasPrefix(f.Seen, "the policy in force, revision 2, published by n2, is not in") && !strings.HasPrefix(f.Seen, "the policy in force, revision 2, published by n2, is not the one in") ||
			!strings.HasPrefix(f.Advice, "'zkelectd policy -g billing' prints it: copy it into the file, and reload. ") || strings.Contains(f.Advice, "--apply") {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
