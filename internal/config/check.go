package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
	"zkelectd/internal/work/probe"
	"zkelectd/internal/work/workenv"
)

// check validates values that have the right type, and calls report with the key and the reason of each error.
func (c *Config) check(report func(key, format string, args ...any)) {
	reported, reportError := make(map[string]bool), report
	report = func(key, format string, args ...any) {
		reported[key] = true
		reportError(key, format, args...)
	}
	for _, k := range Keys() {
		if err := k.check(k.Field(c)); err != nil {
			report(k.Name, "%v", err)
		}
	}
	for key, name := range map[string]string{"node.id": c.Node.ID, "node.site": c.Node.Site} {
		if err := CheckName(name); err != nil {
			report(key, "%q %v", name, err)
		}
	}
	for name := range c.Policy.Sites {
		if err := CheckName(name); err != nil {
			report("policy.sites", "%q %v", name, err)
		}
	}
	c.checkZooKeeper(report)
	c.checkElection(report)
	c.checkPolicy(report, reported)
	c.checkSlots(report)
	work := c.OfSlot(0, max(c.Slots.Count, 1)) // a URL with a variable is invalid before it is replaced
	work.checkProbes(report)
	work.checkChild(report)
	c.checkNone(report)
	c.checkPromotion(report)
	work.checkUnit(report)
	c.checkFencing(report)
	c.checkFailsafe(report)
	c.checkScore(report)
	c.HTTP.check(report)
	c.Device.check(report)
}

// CheckName returns an error unless a name can be one part of a znode path, and of JSON.
func CheckName(s string) error {
	switch {
	case s == "":
		return errors.New("is empty")
	case len(s) > 128:
		return errors.New("is longer than 128 bytes")
	case !utf8.ValidString(s):
		return errors.New("is not valid UTF-8")
	case s == "." || s == "..":
		return errors.New("is not allowed in a znode path")
	case strings.TrimSpace(s) != s:
		return errors.New("begins or ends with a space")
	}
	for _, r := range s {
		if r == '/' || r == utf8.RuneError || !unicode.IsPrint(r) || (r >= 0xF000 && r <= 0xF8FF) ||
			r >= 0xFFF0 && r <= 0xFFFF {
			return fmt.Errorf("contains %s, which is not allowed in a znode path", strconv.QuoteRune(r))
		}
	}
	return nil
}

// maxSocketPath is the kernel's limit, less what is appended to the name while the socket is created.
const maxSocketPath = 90

// checkListen returns an error unless addr is host:port, the path of a unix socket, none, or empty.
func checkListen(addr string) error {
	if file, ok := strings.CutPrefix(addr, unixPrefix); ok {
		switch {
		case !path.IsAbs(file) || path.Clean(file) != file || file == "/":
			return errors.New("must be unix: followed by an absolute path")
		case len(file) > maxSocketPath:
			return fmt.Errorf("is too long for the path of a socket: at most %d bytes", maxSocketPath)
		case strings.ContainsRune(file, 0):
			return errors.New("contains a NUL")
		}
		return nil
	}
	if _, _, err := net.SplitHostPort(addr); err != nil && addr != "" && addr != ListenNone {
		return errors.New("is neither host:port nor unix:/path nor none")
	}
	return nil
}

func (c *Config) checkPolicy(report func(string, string, ...any), reported map[string]bool) {
	p := &c.Policy
	switch delay, manual, err := cluster.ParseFailback(p.Failback); {
	case err != nil || manual: // policy.New reports the error
	case delay == 0:
		p.Failback = cluster.FailbackImmediate
	default:
		p.Failback = delay.String()
	}
	rules := c.Rules()
	if policy.UsesExec(rules) && len(p.Exec) == 0 {
		report("policy.exec", "the policy type exec needs a program")
	}
	_, err := policy.New(cluster.Policy{Rules: rules})
	if err == nil {
		err = policy.CheckCauses(rules)
	}
	if key := policy.UsesBest(rules); err == nil && key != "" && !c.Score.AtElection {
		err = fmt.Errorf("%s: best has the answers of the members that measure their scores for an election: set %s",
			key, scoreAtElection)
	}
	if err != nil {
		// The message begins with the key; for an item of a list, with the key of the list.
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

func (c *Config) checkProbes(report func(string, string, ...any)) {
	child := &c.Child
	for section, p := range map[string]Warm{
		"health": {Target: c.Health.Target}, "child.live": {Target: child.Live.Target}, "child.warm": child.Warm,
		"child.ready": {Target: child.Ready.Target, Notify: child.Ready.Notify},
	} {
		atMostOne(report, section, map[string]bool{"exec": len(p.Exec) > 0, "http": p.HTTP != "", "tcp": p.TCP != "",
			"notify": p.Notify})
		checkTarget(report, section, p.HTTP, p.TCP)
	}
}

// atMostOne reports a section in which more than one of the keys is set.
func atMostOne(report func(string, string, ...any), section string, used map[string]bool) {
	var set []string
	for name, is := range used {
		if is {
			set = append(set, name)
		}
	}
	if slices.Sort(set); len(set) > 1 {
		report(section+"."+set[1], "cannot be set together with %s.%s", section, set[0])
	}
}

// checkProgram reports a command without a program.
func checkProgram(report func(string, string, ...any), p Program) {
	if p.Name == "" {
		report(p.Key, "the program, its first element, is empty")
	}
}

// checkTarget reports an invalid URL or address of a check.
func checkTarget(report func(string, string, ...any), section, link, hostPort string) {
	if u, err := url.Parse(link); link != "" && (err != nil || u.Host == "" ||
		(u.Scheme != "http" && u.Scheme != "https")) {
		report(section+".http", "%q is not an http or https URL", link)
	}
	if _, _, err := net.SplitHostPort(hostPort); hostPort != "" && err != nil {
		report(section+".tcp", "%q is not host:port", hostPort)
	}
}

// unitName matches the names of services that systemd allows, except for templates without an instance.
var unitName = regexp.MustCompile(`^[A-Za-z0-9:_.\\-]+(@[A-Za-z0-9:_.\\-]+)?\.service$`)

func (c *Config) checkUnit(report func(string, string, ...any)) {
	if c.Child.Unit == "" {
		return
	}
	if !unitName.MatchString(c.Child.Unit) || len(c.Child.Unit) > 255 {
		report("child.unit", "%q is not the name of a service, as in app.service", c.Child.Unit)
	}
	for key, set := range map[string]bool{"child.command": len(c.Child.Command) > 0, "child.dir": c.Child.Dir != "",
		"child.ready.notify": c.Child.Ready.Notify} {
		if set {
			report(key, "cannot be set together with child.unit: systemd controls how the unit runs and when it has started")
		}
	}
	if len(c.Child.Env) > 0 {
		report("child.env", "cannot be set together with child.unit: use Environment= or EnvironmentFile= in the "+
			"unit (systemctl edit %s)", c.Child.Unit)
	}
	for key, text := range map[string]string{"node.id": c.Node.ID, "node.site": c.Node.Site,
		"zookeeper.root": c.ZooKeeper.Root} {
		if err := workenv.CheckValue(text); err != nil {
			report(key, "%q %v; child.unit receives it as an environment variable", text, err)
		}
	}
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (c *Config) checkChild(report func(string, string, ...any)) {
	for name := range c.Child.Env {
		switch {
		case !envName.MatchString(name):
			report("child.env", "%q is not the name of a variable", name)
		case strings.HasPrefix(name, envPrefix):
			report("child.env", "%q: names beginning with %s are reserved", name, envPrefix)
		}
	}
	for _, p := range c.Programs() {
		checkProgram(report, p)
	}
	if unix.SignalNum(signalName(c.Child.StopSignal)) == 0 {
		report("child.stop_signal", "%q is not a signal, as in TERM", c.Child.StopSignal)
	}
}

func signalName(s string) string { return "SIG" + strings.TrimPrefix(strings.ToUpper(s), "SIG") }

// Warm says when a standby is ready to be promoted.
type Warm struct {
	probe.Target `yaml:",squash" doc:"A standby is ready to be promoted"`
	Notify       bool `yaml:"notify" doc:"A standby is ready to be promoted when it has sent READY=1 to $NOTIFY_SOCKET (sd_notify). A unit does that with Type=notify."`
}

// Order tells promotable work its role.
type Order struct {
	Exec []string `yaml:"exec" program:"yes" doc:"A command that {doc}. It gets the variables of the work, and ZKELECTD_ROLE=leader or standby. Set at most one of exec and http."`
	HTTP string   `yaml:"http" doc:"A URL that {doc}: it is sent a POST with the role and the fencing token as JSON, and has succeeded if it answers 2xx."`
}

func (o Order) empty() bool { return len(o.Exec) == 0 && o.HTTP == "" }

// Promotable reports whether the work runs on every host that may lead.
func (c Child) Promotable() bool { return !c.Promote.empty() }

func (c *Config) checkPromotion(report func(string, string, ...any)) {
	child := &c.Child
	for section, o := range map[string]Order{"child.promote": child.Promote, "child.demote": child.Demote} {
		atMostOne(report, section, map[string]bool{"exec": len(o.Exec) > 0, "http": o.HTTP != ""})
	}
	work := c.OfSlot(0, max(c.Slots.Count, 1)).Child // a URL with a variable is invalid before it is replaced
	for section, link := range map[string]string{"child.promote": work.Promote.HTTP, "child.demote": work.Demote.HTTP} {
		checkTarget(report, section, link, "")
	}
	warm := child.Warm
	switch {
	case child.Promotable() == child.Demote.empty():
		report("child.promote", "child.promote and child.demote belong together: set both or neither")
		return
	case !child.Promotable() && (!warm.Empty() || warm.Notify):
		report("child.warm", "has no effect: set child.promote and child.demote as well")
	case !child.Promotable():
		return
	case len(child.Command) == 0 && child.Unit == "":
		report("child.promote", "needs child.command or child.unit")
	case child.Unit != "" && warm.Notify:
		report("child.warm.notify", "cannot be set together with child.unit: set Type=notify in the unit instead")
	case c.Slots.Enabled() && c.Slots.PerNode != 1:
		report("child.promote", "needs slots.per_node: 1: a host has one standby, which can lead one slot")
	case c.Slots.Enabled() && (hasSlotVariable(child.Command) || hasSlotVariable(child.Unit) ||
		hasSlotVariable(child.Dir) || hasSlotVariable(child.Env)):
		report("child.promote", "the work contains %s or %s, but a standby belongs to no slot: child.promote says "+
			"which one it leads", slotVariable, slotsVariable)
	}
	if child.Ready.Notify {
		report("child.ready.notify", "cannot be set together with child.promote: use exec, http or tcp")
	}
	if c.Device.Used() {
		report("watchdog_device.mode", "cannot be used together with child.promote")
	}
}
