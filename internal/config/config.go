// Package config loads, checks and prints the configuration. It is strict: it reports everything that it does not understand as
// an error, all errors at once, each with its source, key and reason.
package config

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"zkelectd/internal/cluster"
)

// Config is a valid configuration.
type Config struct {
	Node      Node           `mapstructure:"node"`
	ZooKeeper ZooKeeper      `mapstructure:"zookeeper"`
	Election  Election       `mapstructure:"election"`
	Policy    Policy         `mapstructure:"policy"`
	Slots     Slots          `mapstructure:"slots"`
	Health    Health         `mapstructure:"health"`
	Score     Score          `mapstructure:"score"`
	Child     Child          `mapstructure:"child"`
	Guard     Guard          `mapstructure:"guard"`
	Device    WatchdogDevice `mapstructure:"watchdog_device"`
	Hooks     Hooks          `mapstructure:"hooks"`
	Fencing   Fencing        `mapstructure:"fencing"`
	Failsafe  Failsafe       `mapstructure:"failsafe"`
	HTTP      HTTP           `mapstructure:"http"`
	Log       Log            `mapstructure:"log"`
	Reload    Reload         `mapstructure:"reload"`
	Moves     Moves          `mapstructure:"moves"`
	// GroupsDir is the directory with the group files; empty for one group.
	GroupsDir string `mapstructure:"groups_dir"`
}

// Node describes this daemon and its host.
type Node struct {
	ID       string            `mapstructure:"id"`
	Site     string            `mapstructure:"site"`
	Priority int               `mapstructure:"priority"`
	Labels   map[string]string `mapstructure:"labels"`
	Observer bool              `mapstructure:"observer"`
	// Weight is the share of leaderships in relation to other nodes, MaxLeaders the largest number of them; 0 for no limit.
	Weight     float64 `mapstructure:"weight"`
	MaxLeaders int     `mapstructure:"max_leaders"`
	StateDir   string  `mapstructure:"state_dir"`
}

// Moves limits the preemptions that this host decides on as the elector of its groups.
type Moves struct {
	Spread time.Duration `mapstructure:"spread"`
}

// Election configures this daemon as elector and as candidate.
type Election struct {
	Failback         Failback      `mapstructure:"failback"`
	MaxPreemptions   int           `mapstructure:"max_preemptions"`
	PreemptionWindow time.Duration `mapstructure:"preemption_window"`
	Exclusion        time.Duration `mapstructure:"exclusion"`
	Settle           time.Duration `mapstructure:"settle"`
}

// StrikeResetAfter returns how long a leader must have been READY before its strikes are cleared.
func (e Election) StrikeResetAfter() time.Duration { return 5 * e.Exclusion }

// TakeoverTimeout returns how long a takeover may take before the candidate is excluded and the next one is elected: as long as the
// hook and the start of the work may take.
func (c Config) TakeoverTimeout() time.Duration { return c.Hooks.Timeout + c.Child.Ready.Timeout }

// Failback configures whether a better member may replace a healthy leader.
type Failback struct {
	Mode  string        `mapstructure:"mode"`
	Delay time.Duration `mapstructure:"delay"`
}

// Policy configures how members are filtered and ranked.
type Policy struct {
	Type        string             `mapstructure:"type"`
	Rank        []string           `mapstructure:"rank"`
	Sites       map[string]int     `mapstructure:"sites"`
	Strategies  []cluster.Strategy `mapstructure:"strategies"`
	Expr        string             `mapstructure:"expr"`
	Hysteresis  int                `mapstructure:"hysteresis"`
	Exec        []string           `mapstructure:"exec"`
	Filter      []string           `mapstructure:"filter"`
	ApartStrict []string           `mapstructure:"apart_strict"`
}

// Health configures the check whether this host can lead.
type Health struct {
	Check `mapstructure:",squash"`
	Fall  int `mapstructure:"fall"`
}

// Check is a repeated check; at most one of Exec, HTTP and TCP is set.
type Check struct {
	Exec     []string      `mapstructure:"exec"`
	HTTP     string        `mapstructure:"http"`
	TCP      string        `mapstructure:"tcp"`
	Interval time.Duration `mapstructure:"interval"`
}

// Timeout returns how long one check may take.
func (c Check) Timeout() time.Duration { return checkTimeout(c.Interval) }

// checkTimeout returns how long one of the checks that are repeated after an interval may take.
func checkTimeout(interval time.Duration) time.Duration { return max(interval/2, 2*time.Second) }

// Live configures the check whether the child is alive.
type Live struct {
	Check `mapstructure:",squash"`
	Fall  int `mapstructure:"fall"`
}

// Score configures the source of the score, by which the policy type score ranks.
type Score struct {
	Exec     []string      `mapstructure:"exec"`
	HTTP     string        `mapstructure:"http"`
	Interval time.Duration `mapstructure:"interval"`
}

// Timeout returns how long one measurement may take.
func (s Score) Timeout() time.Duration { return checkTimeout(s.Interval) }

// Reload configures when the configuration is read again.
type Reload struct {
	Watch bool `mapstructure:"watch"`
}

// Child configures the leader-only work.
type Child struct {
	Command []string `mapstructure:"command"`
	Unit    string   `mapstructure:"unit"`
	// None says that there is no leader-only work on purpose.
	None        bool              `mapstructure:"none"`
	Env         map[string]string `mapstructure:"env"`
	Dir         string            `mapstructure:"dir"`
	Ready       Ready             `mapstructure:"ready"`
	Live        Live              `mapstructure:"live"`
	Containment string            `mapstructure:"containment"`
	StopSignal  string            `mapstructure:"stop_signal"`
	StopTimeout time.Duration     `mapstructure:"stop_timeout"`
	// MaxRestarts is how often within a minute a child that exits by itself is started again.
	MaxRestarts int `mapstructure:"max_restarts"`
}

// Guard configures the process that ends the work.
type Guard struct {
	Realtime bool `mapstructure:"realtime"`
	Keepers  bool `mapstructure:"keepers"`
}

// unitState returns the unit's state directory; empty if systemd has created none.
func unitState(getenv func(string) string) string {
	dir, _, _ := strings.Cut(getenv("STATE_DIRECTORY"), ":")
	return dir
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

// UnitSocket returns the path of the socket at which the start of child.unit asks whether this host leads; empty if there can
// be none. Each unit has its own.
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

// StopTimeout returns how long the leader-only work may take to stop if the lease is based on a session timeout: the
// configured value, or the default that the lease allows. It returns 0 if there is no work.
func (c Config) StopTimeout(session time.Duration) time.Duration {
	if len(c.Child.Command) == 0 && c.Child.Unit == "" {
		return 0
	}
	return cmp.Or(c.Child.StopTimeout, cluster.DefaultStop(session))
}

// Signal returns the number of StopSignal.
func (c Child) Signal() syscall.Signal { return unix.SignalNum(signalName(c.StopSignal)) }

// Ready configures the check whether the child is ready; at most one of Exec, HTTP, TCP, Notify and Delay is set.
type Ready struct {
	Exec    []string      `mapstructure:"exec"`
	HTTP    string        `mapstructure:"http"`
	TCP     string        `mapstructure:"tcp"`
	Notify  bool          `mapstructure:"notify"`
	Delay   time.Duration `mapstructure:"delay"`
	Timeout time.Duration `mapstructure:"timeout"`
}

// Hooks are commands that run at changes of leadership.
type Hooks struct {
	PreStart []string `mapstructure:"pre_start"`
	PostStop []string `mapstructure:"post_stop"`
	OnChange []string `mapstructure:"on_change"`
	// OnLeaderChange runs on every member.
	OnLeaderChange []string      `mapstructure:"on_leader_change"`
	Timeout        time.Duration `mapstructure:"timeout"`
}

// HTTP configures the daemon's HTTP server.
type HTTP struct {
	Listen       string   `mapstructure:"listen"`
	AllowedHosts []string `mapstructure:"allowed_hosts"`
	TokenFile    string   `mapstructure:"token_file"`
	WebConfig    string   `mapstructure:"web_config"`
}

// Public returns the address for other hosts, with the prefix https:// if secure is true; "" if there is none.
func (h HTTP) Public(secure bool) string {
	switch {
	case strings.HasPrefix(h.Listen, unixPrefix):
		return ""
	case secure && h.Listen != "":
		return "https://" + h.Listen
	}
	return h.Listen
}

// unixPrefix is the prefix of an address that is the path of a socket.
const unixPrefix = "unix:"

func (h HTTP) check(report func(string, string, ...any)) {
	if err := checkListen(h.Listen); err != nil {
		report("http.listen", "%q %v", h.Listen, err)
	}
	for key, value := range map[string]string{"http.token_file": h.TokenFile, "http.web_config": h.WebConfig} {
		if value != "" && h.Listen == "" {
			report(key, "has no effect: set http.listen as well")
		}
	}
	h.checkHosts(report)
	if h.WebConfig != "" && strings.HasPrefix(h.Listen, unixPrefix) {
		report("http.web_config", "needs host:port in http.listen: access to a unix socket is controlled by the permissions of its file")
	}
}

// hostPattern matches a host name, or *. and a domain.
var hostPattern = regexp.MustCompile(`^(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?$`)

func (h HTTP) checkHosts(report func(string, string, ...any)) {
	if len(h.AllowedHosts) > 0 && h.Listen == "" {
		report("http.allowed_hosts", "has no effect: set http.listen as well")
	}
	for _, name := range h.AllowedHosts {
		if name != "*" && !hostPattern.MatchString(name) {
			report("http.allowed_hosts", "%q is not a host name (without a port), *.domain or *", name)
		}
	}
}

// Log configures the log.
type Log struct {
	Level  string `mapstructure:"level"`
	Format string `mapstructure:"format"`
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "localhost"
	}
	return name
}
