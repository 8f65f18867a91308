package config

import (
	"cmp"
	"slices"
	"strings"
)

// hasWork reports whether leadership of this host has any effect, or is meant to have none.
func (c Config) hasWork() bool {
	h := c.Hooks
	return len(c.Child.Command) > 0 || c.Child.Unit != "" || c.Child.None || c.Node.Observer ||
		len(h.PreStart) > 0 || len(h.PostStop) > 0 || len(h.OnChange) > 0
}

// noWork is why a daemon does not run a configuration without work: most likely the settings of the child were forgotten, and the host
// would take leadership away from hosts that have a child.
const noWork = "is not set, and neither are child.unit and hooks, so this host would lead without doing anything; " +
	"if that is intended, set child.none: true (--no-child), or node.observer: true for a host that is not to lead"

// CheckWork returns an error for each group that would lead without work. Only daemons need it: commands read the same sources.
func (h Host) CheckWork() error {
	var errs Errors
	for _, g := range h.Groups {
		if !g.Config.hasWork() {
			errs.add(g.File, childCommand, noWork)
		}
	}
	if len(errs) > 0 {
		return errs
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
		if !f.cfg.hasWork() {
			f.errs.add(f.path, childCommand, noWork)
		}
		f.cfg.checkFailsafeHost(func(key, reason string) { f.errs.add(cmp.Or(f.source[key], f.path), key, "%s", reason) })
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
