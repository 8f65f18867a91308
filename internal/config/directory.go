package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"zkelectd/internal/sys/secretfile"
)

// checkFound reports an empty directory.
func (d *directory) checkFound(dir string) {
	if len(d.errs) == 0 && len(d.files) == 0 {
		d.errs.add(dir, "", "has no group: create a file NAME.yaml for each group")
	}
}

// directory is what the directory with the group files says.
type directory struct {
	files    map[string]*groupFile // by the name of the group
	warnings []string
	errs     Errors // of the directory as a whole
	// missing is true if the directory does not exist.
	missing bool
}

// groupFile is what one group file says.
type groupFile struct {
	name, path string
	cfg        Config
	values     map[string]found // its own and those that it inherits
	errs       Errors
}

// readDir reads all group files.
func (m *mainFile) readDir() *directory {
	d := &directory{files: make(map[string]*groupFile)}
	if err := secretfile.CheckDirectory(m.dir); err != nil {
		d.missing = errors.Is(err, fs.ErrNotExist)
		d.errs.add(m.dir, "", "%v", err)
		return d
	}
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		d.errs.add(m.dir, "", "cannot be read: %v", errors.Unwrap(err))
		return d
	}
	for _, e := range entries {
		d.add(m, e.Name())
	}
	if n := len(d.files); n > MaxGroups {
		d.files = nil
		d.errs.add(m.dir, "", "has %d groups; a daemon can have at most %d", n, MaxGroups)
	}
	for _, f := range d.files {
		if len(f.errs) == 0 {
			f.read(m)
		}
	}
	return d
}

// copies are extensions that editors and package managers give to copies.
var copies = []string{
	".bak", ".disabled", ".dpkg-dist", ".dpkg-new", ".dpkg-old", ".dpkg-tmp", ".old", ".orig", ".rpmnew", ".rpmorig",
	".rpmsave", ".save", ".swp",
	".tmp",
}

func isCopy(base string) bool {
	return strings.HasPrefix(base, ".") || strings.HasPrefix(base, "#") || strings.HasSuffix(base, "~") ||
		slices.Contains(copies, filepath.Ext(base))
}

// notGroupFile reports whether a file of the directory has nothing to do with groups.
func notGroupFile(base string) bool {
	ext := filepath.Ext(base)
	return isCopy(base) || ext != groupExt && ext != otherExt
}

// add adds a file of the directory, without reading it.
func (d *directory) add(m *mainFile, base string) {
	ext := filepath.Ext(base)
	name, file := strings.TrimSuffix(base, ext), filepath.Join(m.dir, base)
	if notGroupFile(base) {
		if !isCopy(base) {
			d.warnings = append(d.warnings, fmt.Sprintf("%s: ignored: the name of a group file ends in %s", file, groupExt))
		}
		return
	}
	f, exists := d.files[name]
	if !exists {
		f = &groupFile{name: name, path: file}
		d.files[name] = f
	}
	switch {
	case exists:
		f.errs.add(f.path, "", "is one of two files for the group %s: remove it or %s", name, file)
	case !groupName.MatchString(name):
		f.errs.add(file, "", "%q cannot be the name of a group: use a-z, 0-9 and -, not first, and at "+
			"most 63 characters", name)
	case ext != groupExt:
		f.errs.add(file, "", "the name of a group file ends in %s: rename it to %s", groupExt, name+groupExt)
	}
}

// read reads the file, and merges it with the main file.
func (f *groupFile) read(m *mainFile) {
	data, err := readGroupFile(f.path)
	if err != nil {
		f.errs.add(f.path, "", "%v", err)
		return
	}
	own := f.parse(m, data)
	values := overlay(withoutReplacedRules(withoutReplacedWork(overlay(m.settings, m.defaults), own), own), own)
	values[groupsDir] = found{f.path, ""}
	if _, set := own["zookeeper.root"]; !set {
		values["zookeeper.root"] = found{f.path, path.Join(m.cfg.ZooKeeper.Root, f.name)}
	}
	f.cfg = m.cfg.with(values)
	f.cfg.completeDefaults(values)
	if !slices.ContainsFunc(m.errs, func(e Error) bool { return e.Key == "zookeeper.root" }) {
		// else its root is wrong, too
		f.cfg.checkWith(values, f.path, &f.errs)
	}
	f.cfg.refuseRules(values, f.name, &f.errs)
	f.values = values
	f.errs = f.errs.sorted()
}

// withoutReplacedWork returns inherited settings without the work of a group that names its own, or that it has none:
// these settings exclude each other.
func withoutReplacedWork(inherited, own map[string]found) map[string]found {
	kinds := []string{childCommand, "child.unit", "child.none"}
	if !slices.ContainsFunc(kinds, func(key string) bool {
		return own[key].value != nil && !empty(own[key].value) && !reflect.ValueOf(own[key].value).IsZero()
	}) {
		return inherited
	}
	rest := maps.Clone(inherited)
	for _, key := range kinds {
		delete(rest, key)
	}
	return rest
}

// parse returns the settings in the content of the file.
func (f *groupFile) parse(m *mainFile, data []byte) map[string]found {
	w := newWalker(f.path, &f.errs)
	w.refuse = func(k Key) string {
		switch {
		case k.Scope != HostScope:
			return ""
		case m.src.File == "":
			return "is a setting of the host, which a group cannot change"
		}
		return "is a setting of the host: write it in " + m.src.File
	}
	w.read(data, "is empty: write {} for a group that has only the defaults")
	return w.out
}

// readGroupFile returns the content of a regular file, or of one that a symbolic link names.
func readGroupFile(name string) ([]byte, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a named pipe must not block
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("has vanished since the directory was listed, or is a broken link: remove it, or reload again")
	} else if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", errors.Unwrap(err))
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.New("is not a regular file")
	}
	return readTrusted(name, file)
}

// overlay returns the values of base, replaced by those of over. Maps are merged; an empty one replaces, as nothing
// else removes what a unit or another group must not have.
func overlay(base, over map[string]found) map[string]found {
	out := maps.Clone(base)
	for name, f := range over {
		switch own := f.value.(type) {
		case map[string]string:
			f.value = mergeMaps(out[name].value, own)
		case map[string]int:
			f.value = mergeMaps(out[name].value, own)
		}
		out[name] = f
	}
	return out
}

func mergeMaps[V any](base any, over map[string]V) map[string]V {
	out := make(map[string]V)
	if m, ok := base.(map[string]V); ok && len(over) > 0 {
		maps.Copy(out, m)
	}
	maps.Copy(out, over)
	return out
}

// host returns the configuration with all groups of the directory that have no error.
func (d *directory) host(m *mainFile) Host {
	h := Host{Config: m.cfg, Dir: m.dir, Warnings: d.warnings, Unset: m.unset()}
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		if f := d.files[name]; len(f.errs) == 0 {
			h.Groups = append(h.Groups, Group{Name: name, File: f.path, Config: f.cfg})
		}
	}
	return h
}
