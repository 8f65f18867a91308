package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"zkelectd/internal/cluster"
)

// Reloaded is what a reload changes.
type Reloaded struct {
	// Host is the configuration after the reload.
	Host Host
	// Added, Changed and Removed are names of groups.
	Added, Changed, Removed []string
	// Refused has the error of each file that was not accepted, by the name of its group. A group that runs stays as it
	// is.
	Refused map[string]error
}

// allowRemovalsCommand overrides the refusal to remove groups.
const allowRemovalsCommand = "zkelectd reload --allow-removals"

// ReloadHost reads the sources again. An error of the main file, or of the directory as a whole, refuses everything;
// one of a group file, or a changed root, refuses that file alone. Groups that are gone are removed only if they are
// few: a directory that is missing or empty, and one in which more than a fifth of the groups (at least two) is gone,
// is refused unless allowRemovals is true. If running is zero, no group runs.
func ReloadHost(src Sources, running Host, allowRemovals bool) (Reloaded, error) {
	m := readMain(src)
	first := len(running.Groups) == 0 && running.Dir == ""
	if !first {
		m.refuseMoves(running)
	}
	if len(m.errs) > 0 {
		return Reloaded{}, m.errs
	}
	if m.dir == "" {
		r := reloadOne(m, running)
		return r, cmp.Or(r.Host.CheckWork(), r.Host.CheckFailsafe())
	}
	d := m.readDir()
	empty := d.missing && allowRemovals && !first
	if first {
		d.checkFound(m.dir)
	} else if d.missing && !empty {
		d.errs[0].Reason += "; if the groups are to end, run '" + allowRemovalsCommand + "'"
	}
	if len(d.errs) > 0 && !empty {
		return Reloaded{}, d.errs
	}
	for name, f := range d.files {
		if now := running.find(name); now != nil && len(f.errs) == 0 {
			f.refuseMove(now.Config.ZooKeeper.Root)
			refuseKind(now.Config, f.cfg, cmp.Or(f.values["slots.count"].source, f.path), &f.errs)
		}
	}
	d.refuseForDaemon()
	d.refuseConflicts(m.cfg.ZooKeeper.Root, running)
	d.refuseCircles(running)
	r := d.reloaded(m, running)
	if err := d.checkRemovals(r.Removed, running, m.dir); err != nil && !allowRemovals {
		return Reloaded{}, err
	}
	return r, nil
}

// refuseMoves reports changes of the main file that would move groups to other roots.
func (m *mainFile) refuseMoves(running Host) {
	switch {
	case m.dir != running.Dir:
		m.errs.add(m.settings[groupsDir].source, groupsDir, "is %q, and was %q: stop this daemon before the change, "+
			"and start it again", m.dir, running.Dir)
	case m.dir == "" && len(m.errs) == 0:
		refuseKind(running.Groups[0].Config, m.cfg, cmp.Or(m.settings["slots.count"].source, m.src.File), &m.errs)
	case m.dir != "" && m.cfg.ZooKeeper.Root != running.Config.ZooKeeper.Root:
		m.errs.add(m.settings["zookeeper.root"].source, "zookeeper.root",
			"is %q, and was %q: a reload cannot move the groups", m.cfg.ZooKeeper.Root, running.Config.ZooKeeper.Root)
	}
}

// refuseMove reports a changed root: two halves of a fleet would elect two leaders.
func (f *groupFile) refuseMove(from string) {
	if to := f.cfg.ZooKeeper.Root; to != from {
		f.errs.add(f.values["zookeeper.root"].source, "zookeeper.root", "is %q, and was %q: a reload cannot move a "+
			"group: give the new one another name", to, from)
	}
}

// refuseKind reports a group that would get its first slots, or lose all of them: the records of the two kinds are
// different.
func refuseKind(before, after Config, source string, errs *Errors) {
	if before.Slots.Enabled() != after.Slots.Enabled() {
		errs.add(source, "slots.count", "is %d, and was %d: a group with one leader and one with slots are different "+
			"groups; give the new one another name",
			after.Slots.Count, before.Slots.Count)
	}
}

// reloadOne returns the reloaded configuration of a daemon with one group. Its root needs a restart, so its name stays.
func reloadOne(m *mainFile, running Host) Reloaded {
	name := cluster.NameOf(m.cfg.ZooKeeper.Root)
	var r Reloaded
	switch {
	case len(running.Groups) == 0:
		r.Added = []string{name}
	case differ(running.Groups[0].Config, m.cfg):
		name = running.Groups[0].Name
		r.Changed = []string{name}
	default:
		name = running.Groups[0].Name
	}
	r.Host = one(m.cfg, m.src.File, name)
	r.Host.Unset = m.unset()
	return r
}

// reloaded compares the directory with what runs.
func (d *directory) reloaded(m *mainFile, running Host) Reloaded {
	r := Reloaded{Host: d.host(m), Refused: make(map[string]error)}
	for name, f := range d.files {
		if len(f.errs) == 0 {
			continue
		}
		r.Refused[name] = f.errs
		if now := running.find(name); now != nil {
			g := *now
			g.Config = m.cfg.WithGroup(now.Config)
			r.Host.Groups = append(r.Host.Groups, g)
		}
	}
	slices.SortFunc(r.Host.Groups, func(a, b Group) int { return strings.Compare(a.Name, b.Name) })
	for _, g := range r.Host.Groups {
		switch now := running.find(g.Name); {
		case now == nil:
			r.Added = append(r.Added, g.Name)
		case differ(now.Config, g.Config):
			r.Changed = append(r.Changed, g.Name)
		}
	}
	for _, g := range running.Groups {
		if d.files[g.Name] == nil {
			r.Removed = append(r.Removed, g.Name)
		}
	}
	return r
}

// checkRemovals refuses the removal of many groups: a directory that was not mounted, or a copy that stopped half-way,
// is not an order.
func (d *directory) checkRemovals(removed []string, running Host, dir string) error {
	const advice = "if they are to end, run '" + allowRemovalsCommand + "'"
	switch gone, n := len(removed), len(running.Groups); {
	case gone > 0 && len(d.files) == 0:
		return Errors{{Source: dir, Reason: fmt.Sprintf("has no group files any more; %d groups run; %s", n, advice)}}
	case gone >= 2 && gone*5 > n:
		return Errors{{Source: dir, Reason: fmt.Sprintf("the files of %d of %d groups are gone: %s; %s", gone, n,
			strings.Join(removed, ", "), advice)}}
	}
	return nil
}

// WithGroup returns the settings of the host, with those that a group file may set, of own.
func (c Config) WithGroup(own Config) Config {
	to, from := c.fields(), own.fields()
	for _, k := range Keys() {
		if k.Scope != HostScope {
			to[k.Name].Set(from[k.Name])
		}
	}
	c.GroupsDir = ""
	return c
}

// differ reports whether two configurations differ in a setting of the group, or in one that its members show.
func differ(a, b Config) bool {
	reload, restart := Diff(a, b)
	return slices.ContainsFunc(append(reload, restart...), func(key string) bool {
		section, _, _ := strings.Cut(key, ".")
		return !slices.Contains([]string{"http", "log", "reload", groupsDir}, section)
	})
}

// bundleContent is a host's configuration with all its groups. Each text is complete, apart from values that are the
// default.
type bundleContent struct {
	Host   string        `json:"host"`
	Groups []bundleGroup `json:"groups"`
}

type bundleGroup struct {
	Name   string `json:"name"`
	File   string `json:"file"`
	Config string `json:"config"`
}

// Bundle returns a configuration as text, whatever its sources were: a daemon that is started after a crash runs with
// it.
func Bundle(h Host) []byte {
	standard := defaults().settings()
	delete(standard, "node.id") // the name of this host may change
	b := bundleContent{Host: h.Config.sparseYAML(standard)}
	for _, g := range h.Groups {
		b.Groups = append(b.Groups, bundleGroup{g.Name, g.File, g.Config.sparseYAML(standard)})
	}
	data, _ := json.Marshal(b) // never fails: strings only
	return data
}

// Unbundle is the inverse of [Bundle].
func Unbundle(content []byte) (Host, error) {
	var b bundleContent
	if err := json.Unmarshal(content, &b); err != nil {
		return Host{}, fmt.Errorf("the last good configuration is damaged: %w", err)
	}
	var errs Errors
	read := func(source, text string) Config {
		values, _ := parseFile(source, []byte(text), &errs)
		cfg, err := merged(values)
		if err != nil {
			errs.add(source, "", "%v", err)
		}
		cfg.checkWith(values, source, &errs)
		return cfg
	}
	h := Host{Config: read("the last good configuration", b.Host)}
	h.Dir = h.Config.GroupsDir
	for _, g := range b.Groups {
		h.Groups = append(h.Groups, Group{Name: g.Name, File: g.File,
			Config: read("the last good configuration of group "+g.Name, g.Config)})
	}
	if len(errs) > 0 {
		return Host{}, errs
	}
	return h, nil
}

// sparseYAML returns the values of the configuration that are not the standard ones.
func (c Config) sparseYAML(standard map[string]any) string {
	settings := c.settings()
	maps.DeleteFunc(settings, func(key string, v any) bool {
		return same(v, standard[key])
	})
	return yamlOf(settings, nil, func(key string) bool { return settings[key] != nil })
}
