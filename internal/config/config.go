// Package config loads, checks and prints the configuration. It is strict: it reports everything that it does not
// understand as an error, all errors at once, each with its source, key and reason.
package config

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
	"zkelectd/internal/work/probe"
)

// Config is a valid configuration.
type Config struct {
	Node Node `yaml:"node"`
	// GroupsDir is the directory with the group files; empty for one group.
	GroupsDir string         `yaml:"groups_dir" doc:"A directory with a file NAME.yaml for each group of this host. zookeeper.root is then the znode above the roots of the groups. See docs/groups.md."`
	ZooKeeper ZooKeeper      `yaml:"zookeeper"`
	Election  Election       `yaml:"election" scope:"group"`
	Policy    Policy         `yaml:"policy" scope:"group"`
	Slots     Slots          `yaml:"slots" scope:"group"`
	Health    Check          `yaml:"health" scope:"group" doc:"The host is healthy"`
	Score     Score          `yaml:"score" scope:"group"`
	Child     Child          `yaml:"child" scope:"group"`
	Hooks     Hooks          `yaml:"hooks" scope:"group"`
	Device    WatchdogDevice `yaml:"watchdog_device"`
	Fencing   Fencing        `yaml:"fencing" scope:"group"`
	Failsafe  Failsafe       `yaml:"failsafe" scope:"group"`
	HTTP      HTTP           `yaml:"http"`
	Log       Log            `yaml:"log"`
	Reload    Reload         `yaml:"reload"`
}

// Node describes this daemon and its host.
type Node struct {
	ID       string            `yaml:"id" default:"{hostname}" doc:"The name of this daemon, unique in the group. Default: the host name."`
	Site     string            `yaml:"site" default:"default" reload:"yes" doc:"The site of this host."`
	Priority int               `yaml:"priority" scope:"host, group" default:"100" reload:"yes" doc:"Ranks the nodes within a site; higher is better."`
	Labels   map[string]string `yaml:"labels" scope:"host, group" reload:"yes" doc:"Arbitrary labels, shown with the node; policies can use them."`
	Observer bool              `yaml:"observer" scope:"host, group" reload:"yes" doc:"With true this daemon is an observer: it never leads, but it can be the elector."`
	// Weight is the share of leaderships in relation to other nodes, MaxLeaders the largest number of them; 0 for no
	// limit.
	Weight     float64 `yaml:"weight" min:"0.001" max:"1000" default:"1" reload:"yes" doc:"The share of leaderships that the policies spread and fewest give this host, from 0.001 to 1000. See docs/policies.md."`
	MaxLeaders int     `yaml:"max_leaders" min:"0" reload:"yes" doc:"This host is not elected in further groups while it leads this many; each slot counts as one. It keeps what it leads. 0 for no limit."`
	// ForgetAfter is 0 for never.
	ForgetAfter time.Duration `yaml:"forget_after" min:"0s" max:"87600h" reload:"yes" doc:"How long after this host was stopped or lost the group forgets it; 0s for never. For machines that come and go."`
}

// Election configures this daemon as elector and as candidate.
type Election struct {
	Exclusion time.Duration `yaml:"exclusion" min:"1ns" default:"1m" doc:"How long a node is excluded after its first strike; each further strike doubles the time, up to an hour."`
	// Lease is the same for all groups of a host: they share a session and its renewals. LostAfter is 0 for as early as
	// is safe.
	Lease     time.Duration `yaml:"lease" scope:"host" doc:"How long the work goes on while ZooKeeper does not answer: from 900ms to 45% of the session timeout, which is what 0s means. The same on all hosts. See docs/sizing.md."`
	LostAfter time.Duration `yaml:"lost_after" doc:"How long a leader must have been silent before this member takes over: from 1.36 times the lease, which is what 0s means, to zookeeper.session_timeout. The same on all hosts. See docs/sizing.md."`
	Settle    time.Duration `yaml:"settle" max:"1h" default:"3s" doc:"How long the first election waits for other hosts, if the group has never had a leader or all daemons were down."`
}

// StrikeResetAfter returns how long a leader must have been READY before its strikes are cleared.
func (e Election) StrikeResetAfter() time.Duration { return 5 * e.Exclusion }

// TakeoverTimeout returns how long a takeover may take before the candidate is excluded and the next one is elected: as
// long as the hook and the start of the work may take.
func (c Config) TakeoverTimeout() time.Duration {
	start := c.Child.Ready.Timeout
	if c.Child.Unit != "" || c.Child.Promotable() {
		start += c.Child.Ready.Timeout // until systemd has started it, or until it is warm and promoted
	}
	return c.Hooks.Timeout + start
}

func (c *Config) checkElection(report func(string, string, ...any)) {
	e, base := c.Election, c.ZooKeeper.LeaseBase(c.ZooKeeper.SessionTimeout)
	if err := cluster.CheckLease(base, e.Lease); err != nil {
		report("election.lease", "%v", err)
		return
	}
	b, err := cluster.NewBudget(base, e.Lease, 0)
	if err != nil || e.LostAfter == 0 {
		return
	}
	switch least := b.LeaseWait.Round(10 * time.Millisecond); {
	case e.LostAfter < least:
		report("election.lost_after", "%s is too short: the lease of a silent leader is only sure to be over after "+
			"%s; set at least that, or 0s", e.LostAfter, least)
	case e.LostAfter > c.ZooKeeper.SessionTimeout:
		report("election.lost_after", "%s is longer than zookeeper.session_timeout (%s), after which ZooKeeper ends "+
			"the session of a silent leader: raise that as well",
			e.LostAfter, c.ZooKeeper.SessionTimeout)
	}
}

// Policy configures how members are filtered and ranked.
type Policy struct {
	// Source says where the policy is changed, see [Policy.LeftToGroup].
	Source        string `yaml:"source" oneof:"files, group" default:"files" reload:"yes" doc:"Where the policy is changed: files (a reload publishes what was changed in this section) or group (by 'zkelectd policy edit'; this section then has at most exec besides). See docs/policies.md."`
	cluster.Rules `yaml:",squash"`
	Exec          []string `yaml:"exec" program:"yes" reload:"yes" doc:"The program of the type exec. Each host uses the program in its own configuration, never one from ZooKeeper."`
}

// LeftToGroup reports whether the policy is in ZooKeeper alone, and not in the files of hosts.
func (p Policy) LeftToGroup() bool { return p.Source == "group" }

// Check is a repeated check.
type Check struct {
	probe.Target `yaml:",squash" doc:"{doc}"`
	Interval     time.Duration `yaml:"interval" default:"5s" min:"1ns" doc:"The time between two checks. One fails after half of it, at least 2s. Three failed ones in a row count. See docs/policies.md."`
}

// Timeout returns how long one check may take.
func (c Check) Timeout() time.Duration { return max(c.Interval/2, 2*time.Second) }

// Score configures the source of the score, by which the policy type score ranks.
type Score struct {
	Exec []string `yaml:"exec" program:"yes" doc:"The score is the first word of this command's output; with the type score, higher is better. It is measured every 10s, and the last few values are averaged."`
	// AtElection makes members measure the score for each election, see [cluster.RollCall].
	AtElection bool `yaml:"at_election" doc:"Whether all members measure their scores for each election: for replicated data. Part of the policy; each host answers only if its own configuration says so, too. Not with slots. See docs/policies.md."`
	// Timeout is how long one measurement may take.
	Timeout time.Duration `yaml:"timeout" min:"100ms" max:"1m" default:"5s" doc:"A score.exec that runs for longer than this has failed. With score.at_election it is also how long an election waits for the answers of members, and then part of the policy. From 100ms to 1m."`
}

const (
	scoreAtElection = "score.at_election"
	scoreTimeout    = "score.timeout"
)

func (c *Config) checkScore(report func(string, string, ...any)) {
	if c.Score.AtElection && c.Slots.Enabled() {
		report(scoreAtElection, "is not possible in a group with slots (slots.count): a host has one score, and each "+
			"slot other data")
	}
}

// Reload configures when the configuration is read again.
type Reload struct {
	Watch bool `yaml:"watch" doc:"Reload the configuration, as SIGHUP does, whenever its file, a group file in groups_dir, zookeeper.auth.file or http.token_file changes."`
}

// Child configures the leader-only work.
type Child struct {
	Command []string `yaml:"command" program:"yes" doc:"The leader-only child: a program and its arguments."`
	Unit    string   `yaml:"unit" doc:"A systemd service instead of child.command, such as app.service; with slots, each slot has its own, as in app@${ZKELECTD_SLOT}.service. See docs/systemd.md."`
	// None says that there is no leader-only work on purpose.
	None        bool              `yaml:"none" doc:"With true this host leads without leader-only work: programs ask for leases, or who leads. See docs/applications.md."`
	Env         map[string]string `yaml:"env" doc:"Additional environment variables of the child and of the hooks; not for child.unit, which has its own."`
	Dir         string            `yaml:"dir" doc:"The child's working directory. Default: the daemon's."`
	Ready       probe.Readiness   `yaml:"ready"`
	Live        Check             `yaml:"live" doc:"Once it is ready, the child is alive"`
	Promote     Order             `yaml:"promote" doc:"makes the child, which runs on every host that may lead, the leader; see docs/standby.md"`
	Demote      Order             `yaml:"demote" doc:"makes the child a standby again: no leader-only work goes on then. If it fails, or takes longer than child.stop_timeout, the child is killed"`
	Warm        Warm              `yaml:"warm"`
	Containment string            `yaml:"containment" oneof:"auto, cgroup, keeper" scope:"host" default:"auto" doc:"What keeps all processes of the child together: cgroup, keeper, or auto: cgroup if possible, else keeper. See docs/safety.md."`
	StopSignal  string            `yaml:"stop_signal" default:"TERM" doc:"The signal that asks the child to stop."`
	StopTimeout time.Duration     `yaml:"stop_timeout" doc:"How long the child may take to stop after stop_signal. Then it is killed, or earlier if the lease ends. With 0s the timeout is as long as the lease allows (5/6 of the lease), but at most 10s."`
	// MaxRestarts is how often within a minute a child that exits by itself is started again.
	MaxRestarts int `yaml:"max_restarts" min:"0" default:"3" doc:"How often within a minute a child that exits by itself is started again; then the leader gives up leadership."`
}

// StateDirectory returns the directory, on a disk of this host, for what must survive a restart of the host: the unit's
// state directory, or else the default. One daemon uses it at a time.
func StateDirectory(getenv func(string) string) string {
	dir, _, _ := strings.Cut(getenv("STATE_DIRECTORY"), ":")
	return cmp.Or(dir, "/var/lib/zkelectd")
}

// SessionFile returns the path of the session file; empty if there is none.
func (c Config) SessionFile(getenv func(string) string) string {
	if c.ZooKeeper.SessionFile != "" {
		return c.ZooKeeper.SessionFile
	}
	return runtimeFile(getenv, "session")
}

// AppliedFile returns the path of the file with the configuration in force; empty if there is none.
func AppliedFile(getenv func(string) string) string { return runtimeFile(getenv, "applied") }

// UnitSocket returns the path of the socket at which the start of child.unit asks whether this host leads; empty if
// there can be none. Each unit has its own.
func (c Config) UnitSocket(getenv func(string) string) string {
	return runtimeFile(getenv, c.Child.Unit+".sock")
}

// RuntimeDirectory returns the unit's runtime directory; empty if systemd has created none.
func RuntimeDirectory(getenv func(string) string) string {
	dir, _, _ := strings.Cut(getenv("RUNTIME_DIRECTORY"), ":")
	return dir
}

// runtimeFile returns the path of a file in the unit's runtime directory; empty if there is none.
func runtimeFile(getenv func(string) string, name string) string {
	dir := RuntimeDirectory(getenv)
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, name)
}

// Lease returns how long a lease lasts that is based on a session timeout.
func (c Config) Lease(session time.Duration) time.Duration {
	return cmp.Or(c.Election.Lease, cluster.Lease(session))
}

// Budget returns the timing of leaderships whose lease is based on a session timeout.
func (c Config) Budget(session time.Duration) (cluster.Budget, error) {
	return cluster.NewBudget(session, c.Election.Lease, c.StopTimeout(session))
}

// StopTimeout returns how long the leader-only work may take to stop if the lease is based on a session timeout: the
// configured value, or the default that the lease allows. It returns 0 if there is no work.
func (c Config) StopTimeout(session time.Duration) time.Duration {
	if len(c.Child.Command) == 0 && c.Child.Unit == "" {
		return 0
	}
	return cmp.Or(c.Child.StopTimeout, cluster.DefaultStop(session, c.Election.Lease))
}

// Signal returns the number of StopSignal.
func (c Child) Signal() syscall.Signal { return unix.SignalNum(signalName(c.StopSignal)) }

// Hooks are commands that run at changes of leadership.
type Hooks struct {
	PreStart []string `yaml:"pre_start" program:"yes" doc:"A command that runs before the child starts, but not again when the child is restarted in place. If it fails, the takeover fails."`
	PostStop []string `yaml:"post_stop" program:"yes" doc:"A command that runs once pre_start has run and the child is dead for good, before leadership is released. See docs/safety.md."`
	OnChange []string `yaml:"on_change" program:"yes" doc:"A command that runs for each change of this daemon's role, one at a time, with JSON on its standard input."`
	// OnLeaderChange runs on every member.
	OnLeaderChange []string      `yaml:"on_leader_change" program:"yes" reload:"yes" doc:"A command that runs on every member when it sees that another term leads or that nobody leads any more, and once at the start."`
	OnProposal     []string      `yaml:"on_proposal" program:"yes" reload:"yes" doc:"A command that runs on the elector's host when an election waits for a person, with JSON on its standard input. See docs/policies.md."`
	Timeout        time.Duration `yaml:"timeout" min:"1ns" default:"10s" doc:"A hook that runs for longer is killed. A takeover that takes longer than this and child.ready.timeout together has failed; with child.unit or child.promote, child.ready.timeout counts twice."`
}

// Log configures the log.
type Log struct {
	Level  string `yaml:"level" oneof:"debug, info, warn, error" default:"info" reload:"yes" doc:"debug, info, warn or error."`
	Format string `yaml:"format" oneof:"text, json" default:"text" doc:"text or json."`
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "localhost"
	}
	return name
}

// WatchdogDevice configures the device that resets this host if the work outlives its lease. It has nothing to do with
// the watchdog of the elector.
type WatchdogDevice struct {
	Mode   string `yaml:"mode" oneof:"off, automatic, required" default:"off" doc:"Whether a watchdog device resets this host if the leader-only work could outlive its lease: off, automatic (where there is a device that fits the lease) or required (without one this host does not lead). See docs/watchdog-device.md."`
	Device string `yaml:"device" default:"/dev/watchdog" doc:"The device. One process at a time can have it open, so one zkelectd on a host, with all its groups."`
}

// The modes of a watchdog device.
const (
	DeviceOff       = "off"
	DeviceAutomatic = "automatic"
	DeviceRequired  = "required"
)

// Used reports whether the device is to be used.
func (w WatchdogDevice) Used() bool { return w.Mode != DeviceOff && w.Mode != "" }

func (w WatchdogDevice) check(report func(string, string, ...any)) {
	if !strings.HasPrefix(w.Device, "/dev/") || filepath.Clean(w.Device) != w.Device {
		report("watchdog_device.device", "%q is not the clean path of a device, such as /dev/watchdog0", w.Device)
	}
}

// hasWork reports whether leadership of this host has any effect, or is meant to have none.
func (c Config) hasWork() bool {
	h := c.Hooks
	return len(c.Child.Command) > 0 || c.Child.Unit != "" || c.Child.None || c.Node.Observer ||
		len(h.PreStart) > 0 || len(h.PostStop) > 0 || len(h.OnChange) > 0
}

// noWork is why a daemon does not run a configuration without work: most likely the settings of the child were
// forgotten, and the host would take leadership away from hosts that have a child.
const noWork = "is not set, and neither are child.unit and hooks, so this host would lead without doing anything; " +

	"if that is intended, set child.none: true (--no-child), or node.observer: true for a host that is not to lead"

// checkWork calls report if leadership has no effect. Only daemons need it: commands read the same sources.
func (c Config) checkWork(report func(key, reason string)) {
	if !c.hasWork() {
		report(childCommand, noWork)
	}
}

// CheckWork returns an error for each group that would lead without work.
func (h Host) CheckWork() error { return h.checkGroups(Config.checkWork) }

// CheckFailsafe returns an error for each group that a daemon does not run, because something is missing for failsafe
// mode.
func (h Host) CheckFailsafe() error { return h.checkGroups(Config.checkFailsafeHost) }

func (h Host) checkGroups(check func(c Config, report func(key, reason string))) error {
	var errs Errors
	for _, g := range h.Groups {
		check(g.Config, func(key, reason string) { errs.add(g.File, key, "%s", reason) })
	}
	if len(errs) > 0 {
		return unique(errs)
	}
	return nil
}

const childCommand = "child.command"

// checkNone reports work beside child.none.
func (c *Config) checkNone(report func(string, string, ...any)) {
	if c.Child.None && (len(c.Child.Command) > 0 || c.Child.Unit != "") {
		report("child.none", "cannot be set together with child.command or child.unit")
	}
}

// unset returns the settings that say which group the daemon joins, and that no source sets.
func (m *mainFile) unset() []string {
	var keys []string
	for _, key := range []string{"zookeeper.servers", "zookeeper.root"} {
		if _, set := m.settings[key]; !set {
			keys = append(keys, key)
		}
	}
	return keys
}

// Setting returns the value of a setting as text.
func (c Config) Setting(key string) string { return shown(c.settings()[key]) }

// refuseForDaemon reports groups that a daemon does not run, although commands can use their configuration.
func (d *directory) refuseForDaemon() {
	for _, f := range d.files {
		if len(f.errs) > 0 {
			continue
		}
		report := func(key, reason string) { f.errs.add(cmp.Or(f.values[key].source, f.path), key, "%s", reason) }
		f.cfg.checkWork(report)
		f.cfg.checkFailsafeHost(report)
	}
}

// Program is a program that a setting names.
type Program struct{ Key, Name string }

// Programs returns the programs that zkelectd may start, sorted by their settings.
func (c Config) Programs() []Program {
	var all []Program
	for _, k := range Keys() {
		if argv, ok := k.Field(&c).Interface().([]string); ok && k.tag.Get("program") != "" && len(argv) > 0 {
			all = append(all, Program{k.Name, argv[0]})
		}
	}
	slices.SortFunc(all, func(a, b Program) int { return strings.Compare(a.Key, b.Key) })
	return all
}

// completeDefaults sets the default that depends on other settings. values are the settings that were given.
func (c *Config) completeDefaults(values map[string]found) {
	if _, given := values["policy.failback"]; !given && c.failsBack() {
		c.Policy.Failback = defaultFailback
	}
}

// defaultFailback is the default of policy.failback if leaders have to move while they are healthy; otherwise it is
// that of its tag.
const defaultFailback = "30s"

// failsBack reports whether the policy would not do what it is for if healthy leaders stayed where they are: a host
// that has come back would lead none of the slots, or of the groups with the ranker spread; and a group would not
// follow, or avoid, another one.
func (c *Config) failsBack() bool {
	rankers := slices.Clone(c.Policy.Rank)
	if len(rankers) == 0 {
		rankers = append(rankers, c.Policy.Type)
	}
	for _, s := range c.Policy.Strategies {
		rankers = append(rankers, s.Use)
	}
	return c.Slots.Enabled() ||
		slices.ContainsFunc(rankers, func(name string) bool { return name == spread || policy.Relates(name) })
}

const spread = "spread"
