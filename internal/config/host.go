package config

import (
	"cmp"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"zkelectd/internal/cluster"
)

// Host is the configuration of a daemon with all its groups.
type Host struct {
	// Config has the settings of the host; for a daemon with one group, those of the group as well.
	Config Config
	// Dir is the directory with the group files; empty for a daemon with one group.
	Dir string
	// Groups are sorted by name. Without Dir there is exactly one.
	Groups []Group
	// Warnings name files in Dir that were ignored.
	Warnings []string
	// Unset lists the settings that say which group this is, and that no source sets.
	Unset []string
	// From describes the sources of the configuration; zero for that of a daemon.
	From From
}

// From describes where the settings of a command's connection come from.
type From struct {
	// File is the configuration file; empty if none is used.
	File    string
	sources map[string]string
}

// Source returns the source of a setting: a flag, a variable of the environment, a line of a file; empty if it is a
// default.
func (f From) Source(key string) string { return f.sources[key] }

// from describes the sources of the file.
func (m *mainFile) from() From {
	f := From{File: m.src.File, sources: make(map[string]string)}
	for name, v := range m.settings {
		f.sources[name] = v.source
	}
	return f
}

// Group is the complete configuration of one group: the settings of the host, the defaults, and its own.
type Group struct {
	Name string
	// File is the group's file; empty if there is none.
	File   string
	Config Config
}

// Group returns the configuration of a group.
func (h Host) Group(name string) (Config, bool) {
	g := h.find(name)
	if g == nil {
		return Config{}, false
	}
	return g.Config, true
}

func (h Host) find(name string) *Group {
	i, found := slices.BinarySearchFunc(h.Groups, name, func(g Group, name string) int { return strings.Compare(g.Name, name) })
	if !found {
		return nil
	}
	return &h.Groups[i]
}

// one returns the configuration of a daemon with one group.
func one(cfg Config, file, name string) Host {
	return Host{Config: cfg, Groups: []Group{{Name: name, File: file, Config: cfg}}}
}

// LoadHost reads, merges and checks the sources, with the files of all groups. If it fails, the error is [Errors], with all errors
// of all files, and Host is zero.
func LoadHost(src Sources) (Host, error) {
	m := readMain(src)
	if m.dir == "" {
		if len(m.errs) > 0 {
			return Host{}, m.errs
		}
		h := one(m.cfg, src.File, cluster.NameOf(m.cfg.ZooKeeper.Root))
		h.Unset, h.From = m.unset(), m.from()
		return h, nil
	}
	d := m.readDir()
	errs := append(m.errs, d.errs...)
	d.checkFound(m.dir, &errs)
	d.refuseConflicts(m.root(), Host{})
	d.refuseCircles(Host{})
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		errs = append(errs, d.files[name].errs...)
	}
	if len(errs) > 0 {
		return Host{}, unique(errs)
	}
	h := d.host(m)
	h.From = m.from()
	return h, nil
}

// checkFound reports an empty directory.
func (d *directory) checkFound(dir string, errs *Errors) {
	if len(d.errs) == 0 && len(d.files) == 0 {
		errs.add(dir, "", "has no group: create a file NAME.yaml for each group")
	}
}

// unique removes repeated errors: a fault of the main file is one of each group.
func unique(errs Errors) Errors {
	seen := make(map[Error]bool)
	return slices.DeleteFunc(errs, func(e Error) bool {
		repeated := seen[e]
		seen[e] = true
		return repeated
	})
}

// mainFile is what a daemon's main file, environment and flags say.
type mainFile struct {
	src      Sources
	settings map[string]found
	defaults map[string]found
	// dir is the directory with the group files; empty for one group.
	dir  string
	cfg  Config
	errs Errors
}

const groupsDir = "groups_dir"

// readMain reads the main file, the environment and the flags.
func readMain(src Sources) *mainFile {
	m := &mainFile{src: src, settings: make(map[string]found)}
	if src.File != "" {
		content := src.Content
		if content == nil {
			content = readFile(src.File, &m.errs)
		}
		if content != nil { // otherwise it is known why
			m.settings, m.defaults = parseFile(src.File, content, &m.errs)
		}
	}
	all := readLayers(src, m.settings, &m.errs)
	all.refuseStrangers(src, &m.errs)
	m.settings = all.merged()
	if len(src.Command) > 0 {
		m.settings["child.command"] = found{"command line", src.Command}
	}
	m.dir, _ = m.settings[groupsDir].value.(string)
	m.checkScopes()
	cfg, err := merged(m.settings)
	if err != nil {
		m.errs.add("", "", "%v", err)
	}
	m.cfg = cfg
	m.cfg.completeDefaults(m.settings, m.dir != "")
	m.cfg.checkWith(m.settings, "", &m.errs)
	m.errs = m.errs.sorted()
	return m
}

// checkScopes reports settings of groups in the wrong place, and removes them.
func (m *mainFile) checkScopes() {
	if m.dir == "" {
		for name, f := range m.defaults {
			m.errs.add(f.source, defaultsSection+"."+name, "has no effect without groups_dir: write it outside of defaults")
		}
		return
	}
	if !filepath.IsAbs(m.dir) || filepath.Clean(m.dir) != m.dir {
		m.errs.add(m.settings[groupsDir].source, groupsDir, "%q is not a clean absolute path", m.dir)
	}
	places := "in " + filepath.Join(m.dir, "NAME.yaml")
	if m.src.File != "" {
		places = "under defaults in " + m.src.File + ", or " + places
	}
	for name, k := range keyByName() {
		if f, set := m.settings[name]; set && k.Scope == GroupScope {
			m.errs.add(f.source, name, "is a setting of a group: write it %s", places)
			delete(m.settings, name)
		}
	}
}

// root returns the znode above the roots of the groups.
func (m *mainFile) root() string { return m.cfg.ZooKeeper.Root }

// checkWith checks c, which was merged from values. An error in a default has the source of the file, if that can change it.
func (c *Config) checkWith(values map[string]found, file string, errs *Errors) {
	keys := keyByName()
	c.check(func(key, format string, args ...any) {
		source := values[key].source
		if source == "" && file != "" && keys[key].Scope != HostScope {
			source = file
		}
		errs.add(cmp.Or(source, "default"), key, format, args...)
	})
}
