// Package config loads, checks and prints the configuration. It is strict: whatever it does not understand is refused,
// all faults at once, each with its source, key and reason.
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

// Config is a configuration that has been checked.
type Config struct {
	Node      Node      `mapstructure:"node"`
	ZooKeeper ZooKeeper `mapstructure:"zookeeper"`
	Election  Election  `mapstructure:"election"`
	Policy    Policy    `mapstructure:"policy"`
	Health    Health    `mapstructure:"health"`
	Score     Score     `mapstructure:"score"`
	Child     Child     `mapstructure:"child"`
	Guard     Guard     `mapstructure:"guard"`
	Hooks     Hooks     `mapstructure:"hooks"`
	HTTP      HTTP      `mapstructure:"http"`
	Log       Log       `mapstructure:"log"`
	Reload    Reload    `mapstructure:"reload"`
}

// Node is who and where this daemon is.
type Node struct {
	ID       string            `mapstructure:"id"`
	Site     string            `mapstructure:"site"`
	Priority int               `mapstructure:"priority"`
	Labels   map[string]string `mapstructure:"labels"`
	Observer bool              `mapstructure:"observer"`
}

// Election is how this daemon acts as the elector, and as a candidate.
type Election struct {
	Failback         Failback      `mapstructure:"failback"`
	MaxPreemptions   int           `mapstructure:"max_preemptions"`
	PreemptionWindow time.Duration `mapstructure:"preemption_window"`
	TakeoverTimeout  time.Duration `mapstructure:"takeover_timeout"`
	Exclusion        time.Duration `mapstructure:"exclusion"`
	StrikeResetAfter time.Duration `mapstructure:"strike_reset_after"`
	TrustSessionEnd  bool          `mapstructure:"trust_session_end"`
}

// Failback says whether a better member may replace a healthy leader.
type Failback struct {
	Mode  string        `mapstructure:"mode"`
	Delay time.Duration `mapstructure:"delay"`
}

// Policy is how members are ranked.
type Policy struct {
	Revision      int                `mapstructure:"revision"`
	Type          string             `mapstructure:"type"`
	Rank          []string           `mapstructure:"rank"`
	Sites         map[string]int     `mapstructure:"sites"`
	Strategies    []cluster.Strategy `mapstructure:"strategies"`
	Expr          string             `mapstructure:"expr"`
	Hysteresis    int                `mapstructure:"hysteresis"`
	Exec          Exec               `mapstructure:"exec"`
	Filter        []string           `mapstructure:"filter"`
	MinPriority   int                `mapstructure:"min_priority"`
	RequireLabels map[string]string  `mapstructure:"require_labels"`
	ExcludeNodes  []string           `mapstructure:"exclude_nodes"`
	DisabledSites []string           `mapstructure:"disabled_sites"`
}

// Exec is the program that ranks under the preset exec.
type Exec struct {
	Command  []string      `mapstructure:"command"`
	Timeout  time.Duration `mapstructure:"timeout"`
	Fallback string        `mapstructure:"fallback"`
}

// Health is how this host finds out whether it could lead.
type Health struct {
	Check `mapstructure:",squash"`
	Rise  int `mapstructure:"rise"`
	Fall  int `mapstructure:"fall"`
}

// Check is a probe that is repeated.
type Check struct {
	Exec     []string      `mapstructure:"exec"`
	HTTP     string        `mapstructure:"http"`
	TCP      string        `mapstructure:"tcp"`
	Interval time.Duration `mapstructure:"interval"`
	Timeout  time.Duration `mapstructure:"timeout"`
}

// Live is how to find out that the child still serves.
type Live struct {
	Check `mapstructure:",squash"`
	Fall  int `mapstructure:"fall"`
}

// Score is where the number comes from that the policy score ranks by.
type Score struct {
	Exec     []string      `mapstructure:"exec"`
	HTTP     string        `mapstructure:"http"`
	Interval time.Duration `mapstructure:"interval"`
	Timeout  time.Duration `mapstructure:"timeout"`
}

// Reload says when the configuration is read again.
type Reload struct {
	Watch bool `mapstructure:"watch"`
}

// Child is the leader-only child.
type Child struct {
	Command     []string          `mapstructure:"command"`
	Unit        string            `mapstructure:"unit"`
	Env         map[string]string `mapstructure:"env"`
	Dir         string            `mapstructure:"dir"`
	Ready       Ready             `mapstructure:"ready"`
	Live        Live              `mapstructure:"live"`
	Containment string            `mapstructure:"containment"`
	StopSignal  string            `mapstructure:"stop_signal"`
	StopTimeout time.Duration     `mapstructure:"stop_timeout"`
	Restart     Restart           `mapstructure:"restart"`
}

// Guard is how the process that ends the work is run.
type Guard struct {
	Realtime bool `mapstructure:"realtime"`
}

// SessionFile is where the session's credentials are kept; empty for nowhere.
func (c Config) SessionFile(getenv func(string) string) string {
	if c.ZooKeeper.SessionFile != "" {
		return c.ZooKeeper.SessionFile
	}
	return runtimeFile(getenv, "session")
}

// UnitSocket is where the start of child.unit learns of this host's leadership; empty where there can be none.
func (c Config) UnitSocket(getenv func(string) string) string {
	return runtimeFile(getenv, "unit.sock")
}

// runtimeFile is a file in the runtime directory that systemd has made, if it has; getenv tells.
func runtimeFile(getenv func(string) string, name string) string {
	dir, _, _ := strings.Cut(getenv("RUNTIME_DIRECTORY"), ":")
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, name)
}

// StopTimeout returns how long the leader-only work may take to stop if the lease rests on a session timeout: what is
// configured, or the default that the lease allows. It returns 0 if there is no work.
func (c Config) StopTimeout(session time.Duration) time.Duration {
	if len(c.Child.Command) == 0 && c.Child.Unit == "" {
		return 0
	}
	return cmp.Or(c.Child.StopTimeout, cluster.DefaultStop(session))
}

// Signal is StopSignal as a number.
func (c Child) Signal() syscall.Signal { return unix.SignalNum(signalName(c.StopSignal)) }

// Ready is how to find out that the child serves.
type Ready struct {
	Exec     []string      `mapstructure:"exec"`
	HTTP     string        `mapstructure:"http"`
	TCP      string        `mapstructure:"tcp"`
	Notify   bool          `mapstructure:"notify"`
	Delay    time.Duration `mapstructure:"delay"`
	Interval time.Duration `mapstructure:"interval"`
	Timeout  time.Duration `mapstructure:"timeout"`
}

// Restart bounds the restarts of a child that exits by itself.
type Restart struct {
	Max     int           `mapstructure:"max"`
	Window  time.Duration `mapstructure:"window"`
	Backoff time.Duration `mapstructure:"backoff"`
}

// Hooks are commands at the turns of leadership.
type Hooks struct {
	PreStart []string      `mapstructure:"pre_start"`
	PostStop []string      `mapstructure:"post_stop"`
	OnChange []string      `mapstructure:"on_change"`
	Timeout  time.Duration `mapstructure:"timeout"`
}

// HTTP is the daemon's own listener.
type HTTP struct {
	Listen       string   `mapstructure:"listen"`
	AllowedHosts []string `mapstructure:"allowed_hosts"`
	TokenFile    string   `mapstructure:"token_file"`
	WebConfig    string   `mapstructure:"web_config"`
}

// Public is the address that other hosts may ask, with https:// before it if it speaks TLS; "" if there is none.
func (h HTTP) Public(secure bool) string {
	switch {
	case strings.HasPrefix(h.Listen, unixPrefix):
		return ""
	case secure && h.Listen != "":
		return "https://" + h.Listen
	}
	return h.Listen
}

// unixPrefix begins an address that is a socket's path.
const unixPrefix = "unix:"

func (h HTTP) check(report func(string, string, ...any)) {
	if why := checkListen(h.Listen); why != "" {
		report("http.listen", "%q %s", h.Listen, why)
	}
	for key, value := range map[string]string{"http.token_file": h.TokenFile, "http.web_config": h.WebConfig} {
		if value != "" && h.Listen == "" {
			report(key, "has no effect: set http.listen as well")
		}
	}
	h.checkHosts(report)
	if h.WebConfig != "" && strings.HasPrefix(h.Listen, unixPrefix) {
		report("http.web_config", "is for host:port: who may use a socket is a matter of the file")
	}
}

// hostPattern is a host name, or *. and a domain.
var hostPattern = regexp.MustCompile(`^(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?$`)

func (h HTTP) checkHosts(report func(string, string, ...any)) {
	if len(h.AllowedHosts) > 0 && h.Listen == "" {
		report("http.allowed_hosts", "has no effect: set http.listen as well")
	}
	for _, name := range h.AllowedHosts {
		if name != "*" && !hostPattern.MatchString(name) {
			report("http.allowed_hosts", "%q is no host name without a port, no *.domain, and not *", name)
		}
	}
}

// Log is what is logged and how.
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
