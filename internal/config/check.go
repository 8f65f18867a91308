package config

import (
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
)

// check finds what is wrong with values of the right type; report takes the key and the reason.
func (c *Config) check(report func(key, format string, args ...any)) {
	for key, name := range map[string]string{"node.id": c.Node.ID, "node.site": c.Node.Site} {
		if why := checkName(name); why != "" {
			report(key, "%q %s", name, why)
		}
	}
	for site := range c.Policy.Sites {
		if why := checkName(site); why != "" {
			report("policy.sites", "%q %s", site, why)
		}
	}
	c.checkZooKeeper(report)
	c.checkElection(report)
	c.checkChild(report)
	if c.HTTP.Listen != "" {
		if _, _, err := net.SplitHostPort(c.HTTP.Listen); err != nil {
			report("http.listen", "%q is not host:port", c.HTTP.Listen)
		}
	}
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

func (c *Config) checkZooKeeper(report func(string, string, ...any)) {
	z := &c.ZooKeeper
	if len(z.Servers) == 0 {
		report("zookeeper.servers", "is empty: name at least one host:port")
	}
	for i, server := range z.Servers {
		if !strings.Contains(server, ":") && server != "" {
			server += ":2181"
			z.Servers[i] = server
		}
		host, port, err := net.SplitHostPort(server)
		if n, perr := strconv.Atoi(port); err != nil || host == "" || perr != nil || n < 1 || n > 65535 {
			report("zookeeper.servers", "%q is not host:port", server)
		}
	}
	switch {
	case !strings.HasPrefix(z.Root, "/"):
		report("zookeeper.root", "%q must begin with /", z.Root)
	case z.Root == "/":
		report("zookeeper.root", "must not be / itself: name a znode for the group, as in /cluster")
	case path.Clean(z.Root) != z.Root:
		report("zookeeper.root", "%q: write it as %q", z.Root, path.Clean(z.Root))
	case z.Root == "/zookeeper" || strings.HasPrefix(z.Root, "/zookeeper/"):
		report("zookeeper.root", "%q belongs to ZooKeeper itself", z.Root)
	default:
		for part := range strings.SplitSeq(z.Root[1:], "/") {
			if why := checkName(part); why != "" {
				report("zookeeper.root", "%q %s", part, why)
			}
		}
	}
	if z.SessionTimeout < 400*time.Millisecond || z.SessionTimeout > 10*time.Minute {
		report("zookeeper.session_timeout", "%s is not between 400ms and 10m", z.SessionTimeout)
	}
}

func (c *Config) checkElection(report func(string, string, ...any)) {
	if !slices.Contains([]string{"immediate", "delayed", "manual"}, c.Election.Failback.Mode) {
		report("election.failback.mode", "%q is not one of immediate, delayed, manual", c.Election.Failback.Mode)
	}
	positive(report, "election.takeover_timeout", c.Election.TakeoverTimeout)
	positive(report, "election.exclusion", c.Election.Exclusion)
	positive(report, "election.forgive_after", c.Election.ForgiveAfter)
	if c.Policy.Type != "priority" {
		report("policy.type", "%q is not a policy: want priority", c.Policy.Type)
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
	for key, argv := range map[string][]string{
		"child.command": c.Child.Command, "child.ready.exec": c.Child.Ready.Exec, "hooks.pre_start": c.Hooks.PreStart,
		"hooks.post_stop": c.Hooks.PostStop, "hooks.on_change": c.Hooks.OnChange,
	} {
		if len(argv) > 0 && argv[0] == "" {
			report(key, "its first word, the program, is empty")
		}
	}
	r := c.Child.Ready
	var set []string
	for name, used := range map[string]bool{
		"exec": len(r.Exec) > 0, "http": r.HTTP != "", "tcp": r.TCP != "", "notify": r.Notify, "delay": r.Delay > 0,
	} {
		if used {
			set = append(set, name)
		}
	}
	if slices.Sort(set); len(set) > 1 {
		report("child.ready."+set[1], "is set beside child.ready.%s: choose one", set[0])
	}
	if u, err := url.Parse(r.HTTP); r.HTTP != "" && (err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https")) {
		report("child.ready.http", "%q is not an http URL", r.HTTP)
	}
	if _, _, err := net.SplitHostPort(r.TCP); r.TCP != "" && err != nil {
		report("child.ready.tcp", "%q is not host:port", r.TCP)
	}
	positive(report, "child.ready.interval", r.Interval)
	positive(report, "child.ready.timeout", r.Timeout)
	positive(report, "child.restart.window", c.Child.Restart.Window)
	if c.Child.Restart.Max < 0 {
		report("child.restart.max", "must not be negative")
	}
	if unix.SignalNum(signalName(c.Child.StopSignal)) == 0 {
		report("child.stop_signal", "%q is not a signal, as in TERM", c.Child.StopSignal)
	}
}

func signalName(s string) string { return "SIG" + strings.TrimPrefix(strings.ToUpper(s), "SIG") }
