package config

import (
	"maps"
	"net"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
	"zkelectd/internal/workenv"
)

// check finds what is wrong with values of the right type; report takes the key and the reason.
func (c *Config) check(tell func(key, format string, args ...any)) {
	reported := make(map[string]bool)
	report := func(key, format string, args ...any) {
		reported[key] = true
		tell(key, format, args...)
	}
	for key, name := range map[string]string{"node.id": c.Node.ID, "node.site": c.Node.Site} {
		if why := checkName(name); why != "" {
			report(key, "%q %s", name, why)
		}
	}
	for key, names := range map[string][]string{
		"policy.sites": slices.Collect(maps.Keys(c.Policy.Sites)), "policy.exclude_nodes": c.Policy.ExcludeNodes, "policy.disabled_sites": c.Policy.DisabledSites,
	} {
		for _, name := range names {
			if why := checkName(name); why != "" {
				report(key, "%q %s", name, why)
			}
		}
	}
	c.checkZooKeeper(report)
	c.checkElection(report)
	c.checkPolicy(report, reported)
	c.checkProbes(report)
	c.checkChild(report)
	c.checkUnit(report)
	c.HTTP.check(report)
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, c.Log.Level) {
		report("log.level", "%q is not one of debug, info, warn, error", c.Log.Level)
	}
	if c.Log.Format != "text" && c.Log.Format != "json" {
		report("log.format", "%q is neither text nor json", c.Log.Format)
	}
	positive(report, "hooks.timeout", c.Hooks.Timeout)
}

func positive(report func(string, string, ...any), key string, d time.Duration) {
	if d <= 0 {
		report(key, "must be more than 0s")
	}
}

// checkName says what keeps a name from being part of a znode path and of JSON, "" if nothing does.
func checkName(s string) string {
	switch {
	case s == "":
		return "is empty"
	case len(s) > 128:
		return "is longer than 128 bytes"
	case !utf8.ValidString(s):
		return "is not valid UTF-8"
	case s == "." || s == "..":
		return "is not allowed in a znode path"
	case strings.TrimSpace(s) != s:
		return "begins or ends with a blank"
	}
	for _, r := range s {
		if r == '/' || r == utf8.RuneError || !unicode.IsPrint(r) || (r >= 0xF000 && r <= 0xF8FF) || r >= 0xFFF0 && r <= 0xFFFF {
			return "contains " + strconv.QuoteRune(r) + ", which a znode path cannot hold"
		}
	}
	return ""
}

// maxSocketPath is what the kernel allows, less what the socket is called while it is made.
const maxSocketPath = 90

func checkListen(addr string) string {
	if file, ok := strings.CutPrefix(addr, unixPrefix); ok {
		switch {
		case !path.IsAbs(file) || path.Clean(file) != file || file == "/":
			return "is not unix:/ and the absolute path of a socket"
		case len(file) > maxSocketPath:
			return "is too long for a socket's path: at most " + strconv.Itoa(maxSocketPath) + " bytes"
		case strings.ContainsRune(file, 0):
			return "contains a NUL"
		}
		return ""
	}
	if _, _, err := net.SplitHostPort(addr); err != nil && addr != "" {
		return "is neither host:port nor unix:/path"
	}
	return ""
}

func (c *Config) checkElection(report func(string, string, ...any)) {
	if !slices.Contains([]string{cluster.FailbackImmediate, cluster.FailbackDelayed, cluster.FailbackManual}, c.Election.Failback.Mode) {
		report("election.failback.mode", "%q is not one of immediate, delayed, manual", c.Election.Failback.Mode)
	}
	positive(report, "election.takeover_timeout", c.Election.TakeoverTimeout)
	positive(report, "election.exclusion", c.Election.Exclusion)
	positive(report, "election.strike_reset_after", c.Election.StrikeResetAfter)
	if c.Election.MaxPreemptions < 0 {
		report("election.max_preemptions", "must not be negative")
	}
	positive(report, "election.preemption_window", c.Election.PreemptionWindow)
}

func (c *Config) checkPolicy(report func(string, string, ...any), reported map[string]bool) {
	p := &c.Policy
	if p.Revision < 0 {
		report("policy.revision", "must not be negative")
	}
	if p.Hysteresis < 0 || p.Hysteresis > 1000 {
		report("policy.hysteresis", "%d is not between 0 and 1000 per cent", p.Hysteresis)
	}
	positive(report, "policy.exec.timeout", p.Exec.Timeout)
	rules := c.Rules()
	if policy.UsesExec(rules) && len(p.Exec.Command) == 0 {
		report("policy.exec.command", "the policy exec needs a program")
	}
	if _, err := policy.New(cluster.Policy{Rules: rules}); err != nil {
		// The key at fault leads the message; that of a list's item is the list's.
		key, reason, _ := strings.Cut(err.Error(), ": ")
		name, item, _ := strings.Cut(key, "[")
		if item != "" {
			reason = "[" + item + ": " + reason
		}
		if !reported[name] {
			report(name, "%s", reason)
		}
	}
}

// probes are the probes that are repeated, by their section.
func (c *Config) probes() map[string]Check {
	return map[string]Check{
		"health": c.Health.Check, "child.live": c.Child.Live.Check,
		"score": {Exec: c.Score.Exec, HTTP: c.Score.HTTP, Interval: c.Score.Interval, Timeout: c.Score.Timeout},
	}
}

func (c *Config) checkProbes(report func(string, string, ...any)) {
	for section, p := range c.probes() {
		one(report, section, map[string]bool{"exec": len(p.Exec) > 0, "http": p.HTTP != "", "tcp": p.TCP != ""})
		program(report, section+".exec", p.Exec)
		address(report, section, p.HTTP, p.TCP)
		positive(report, section+".interval", p.Interval)
		positive(report, section+".timeout", p.Timeout)
	}
	for key, n := range map[string]int{"health.rise": c.Health.Rise, "health.fall": c.Health.Fall, "child.live.fall": c.Child.Live.Fall} {
		if n < 1 {
			report(key, "must be 1 or more")
		}
	}
}

// one refuses more than one way to probe.
func one(report func(string, string, ...any), section string, used map[string]bool) {
	var set []string
	for name, is := range used {
		if is {
			set = append(set, name)
		}
	}
	if slices.Sort(set); len(set) > 1 {
		report(section+"."+set[1], "is set beside %s.%s: choose one", section, set[0])
	}
}

func program(report func(string, string, ...any), key string, argv []string) {
	if len(argv) > 0 && argv[0] == "" {
		report(key, "its first word, the program, is empty")
	}
}

func address(report func(string, string, ...any), section, link, hostPort string) {
	if u, err := url.Parse(link); link != "" && (err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https")) {
		report(section+".http", "%q is not an http URL", link)
	}
	if _, _, err := net.SplitHostPort(hostPort); hostPort != "" && err != nil {
		report(section+".tcp", "%q is not host:port", hostPort)
	}
}

// unitName is what systemd allows, without templates that name no instance.
var unitName = regexp.MustCompile(`^[A-Za-z0-9:_.\\-]+(@[A-Za-z0-9:_.\\-]+)?\.service$`)

func (c *Config) checkUnit(report func(string, string, ...any)) {
	if c.Child.Unit == "" {
		return
	}
	if !unitName.MatchString(c.Child.Unit) || len(c.Child.Unit) > 255 {
		report("child.unit", "%q is not the name of a service, as in app.service", c.Child.Unit)
	}
	for key, set := range map[string]bool{"child.command": len(c.Child.Command) > 0, "child.dir": c.Child.Dir != "", "child.ready.notify": c.Child.Ready.Notify} {
		if set {
			report(key, "is set beside child.unit: how the unit is run, and when it has started, is systemd's affair")
		}
	}
	if len(c.Child.Env) > 0 {
		report("child.env", "is set beside child.unit: use Environment= or EnvironmentFile= in the unit (systemctl edit %s)", c.Child.Unit)
	}
	for key, text := range map[string]string{"node.id": c.Node.ID, "node.site": c.Node.Site, "zookeeper.root": c.ZooKeeper.Root} {
		if err := workenv.CheckValue(text); err != nil {
			report(key, "%q %v; child.unit gets it as an environment variable", text, err)
		}
	}
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (c *Config) checkChild(report func(string, string, ...any)) {
	for name := range c.Child.Env {
		switch {
		case !envName.MatchString(name):
			report("child.env", "%q is not a name for a variable", name)
		case strings.HasPrefix(name, envPrefix):
			report("child.env", "%q: names beginning with %s are the daemon's", name, envPrefix)
		}
	}
	r := c.Child.Ready
	for key, argv := range map[string][]string{
		"child.command": c.Child.Command, "child.ready.exec": r.Exec, "hooks.pre_start": c.Hooks.PreStart,
		"hooks.post_stop": c.Hooks.PostStop, "hooks.on_change": c.Hooks.OnChange, "policy.exec.command": c.Policy.Exec.Command,
	} {
		program(report, key, argv)
	}
	one(report, "child.ready", map[string]bool{
		"exec": len(r.Exec) > 0, "http": r.HTTP != "", "tcp": r.TCP != "", "notify": r.Notify, "delay": r.Delay > 0,
	})
	address(report, "child.ready", r.HTTP, r.TCP)
	positive(report, "child.ready.interval", r.Interval)
	positive(report, "child.ready.timeout", r.Timeout)
	positive(report, "child.restart.window", c.Child.Restart.Window)
	if c.Child.Restart.Max < 0 {
		report("child.restart.max", "must not be negative")
	}
	if !slices.Contains(Containments, c.Child.Containment) {
		report("child.containment", "%q is not one of %s", c.Child.Containment, strings.Join(Containments, ", "))
	}
	if unix.SignalNum(signalName(c.Child.StopSignal)) == 0 {
		report("child.stop_signal", "%q is not a signal, as in TERM", c.Child.StopSignal)
	}
}

// Containments are those of package guard, as a test there makes sure.
var Containments = []string{"auto", "cgroup", "pidns", "keeper"}

func signalName(s string) string { return "SIG" + strings.TrimPrefix(strings.ToUpper(s), "SIG") }
