package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v3"
)

// Context is a named connection to ZooKeeper, for commands.
type Context struct {
	Name string
	// File is the file of the contexts.
	File   string
	values map[string]found // by the names of the section zookeeper
}

// Contexts are the contexts of a user.
type Contexts struct {
	File string
	// Current is the name of the context that commands use; empty for none.
	Current string
	list    []Context
	current *yaml.Node // the value of current; nil if there is none
	root    *yaml.Node // nil for an empty file
	data    []byte
}

// ContextFile returns the path of the file with the user's contexts; empty if the environment has no home directory.
func ContextFile(getenv func(string) string) string {
	dir := getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) {
		home := getenv("HOME")
		if !filepath.IsAbs(home) {
			return ""
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "zkelectd", "config.yaml")
}

// ReadContexts reads the file of the contexts; without the file there are none. home is the user's home directory. As a configuration
// file, it is refused if other users can change it. If it is invalid, the error is [Errors], with all errors.
func ReadContexts(file, home string) (Contexts, error) {
	c := Contexts{File: file}
	data, err := readContextFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c, nil
	case err != nil:
		return c, Errors{{Source: file, Reason: err.Error()}}
	}
	c.data = data
	var errs Errors
	if c.root = rootNode(file, data, &errs); c.root != nil {
		c.parse(home, &errs)
	}
	if len(errs) > 0 {
		return Contexts{File: file}, errs
	}
	return c, nil
}

func readContextFile(path string) ([]byte, error) {
	if path == "" {
		return nil, fs.ErrNotExist
	}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a named pipe must not block
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", cmp.Or(errors.Unwrap(err), err))
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.New("is not a regular file")
	}
	return readTrusted(path, file)
}

// contextName matches the names of contexts.
var contextName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func (c *Contexts) parse(home string, errs *Errors) {
	at := func(n *yaml.Node) string { return fmt.Sprintf("%s:%d", c.File, n.Line) }
	each := func(n *yaml.Node, key string, f func(name, value *yaml.Node)) {
		if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
			return
		}
		if n.Kind != yaml.MappingNode {
			errs.add(at(n), key, "must be a section of keys")
			return
		}
		seen := make(map[string]bool)
		for i := 0; i+1 < len(n.Content); i += 2 {
			name := n.Content[i]
			if seen[name.Value] {
				errs.add(at(name), strings.TrimPrefix(key+"."+name.Value, "."), "is given twice")
				continue
			}
			seen[name.Value] = true
			f(name, n.Content[i+1])
		}
	}
	each(c.root, "", func(name, value *yaml.Node) {
		switch name.Value {
		case "current":
			if value.Kind != yaml.ScalarNode || value.Tag == "!!null" {
				errs.add(at(value), "current", "must be the name of a context")
				return
			}
			c.Current, c.current = value.Value, value
		case "contexts":
			each(value, "contexts", func(name, value *yaml.Node) {
				if !contextName.MatchString(name.Value) {
					errs.add(at(name), "contexts", "%q cannot be the name of a context: use letters, digits, and . _ - but not first, at most 63 characters", name.Value)
					return
				}
				c.list = append(c.list, readContext(c.File, name, value, home, errs))
			})
		default:
			errs.add(at(name), name.Value, "is not a setting: there are current and contexts")
		}
	})
	slices.SortFunc(c.list, func(a, b Context) int { return strings.Compare(a.Name, b.Name) })
}

// zookeeperSection is the prefix of the settings that a context has, under shorter names.
const zookeeperSection = "zookeeper."

// daemonOnly are the settings of the section that concern only a daemon.
var daemonOnly = []string{"session_file", "min_session_timeout"}

// readContext reads a context, and checks it alone.
func readContext(file string, name, value *yaml.Node, home string, errs *Errors) Context {
	w := walker{path: file, keys: make(map[string]Key), out: make(map[string]found), errs: errs, within: "contexts." + name.Value + "."}
	for _, k := range Keys() {
		if short, ok := strings.CutPrefix(k.Name, zookeeperSection); ok {
			k.Name = short
			w.keys[short] = k
			w.names = append(w.names, short)
		}
	}
	w.refuse = func(k Key) string {
		if slices.Contains(daemonOnly, k.Name) {
			return "is a setting of a daemon, not of a command"
		}
		return ""
	}
	before := len(*errs)
	w.section("", value)
	if _, ok := w.out["servers"]; !ok && len(*errs) == before {
		errs.add(w.at(name), w.within+"servers", "is missing: name at least one host:port")
	}
	values := make(map[string]found)
	for short, f := range w.out {
		if text, isText := f.value.(string); isText && isPath(short) {
			path, err := absolute(text, home)
			if err != nil {
				errs.add(f.source, w.within+short, "%v", err)
			}
			f.value = path
		}
		values[zookeeperSection+short] = f
	}
	if len(*errs) == before {
		checkContext(values, w.at(name), w.within, errs)
	}
	for key, f := range values {
		f.source = fmt.Sprintf("context %s (%s)", name.Value, f.source)
		values[key] = f
	}
	return Context{Name: name.Value, File: file, values: values}
}

// checkContext reports what is wrong with the values of a context.
func checkContext(values map[string]found, at, within string, errs *Errors) {
	cfg, err := merged(values)
	if err != nil {
		errs.add(at, "", "%v", err)
		return
	}
	cfg.checkZooKeeper(func(key, format string, args ...any) {
		errs.add(cmp.Or(values[key].source, at), within+strings.TrimPrefix(key, zookeeperSection), format, args...)
	})
}

// isPath reports whether a setting of a context names a file.
func isPath(short string) bool {
	return slices.Contains([]string{"auth.file", "tls.ca", "tls.cert", "tls.key"}, short)
}

// absolute returns the path that a context names. It does not depend on the current directory.
func absolute(path, home string) (string, error) {
	if rest, ok := strings.CutPrefix(path, "~/"); ok && home != "" {
		path = filepath.Join(home, rest)
	}
	if path != "" && !filepath.IsAbs(path) {
		return "", fmt.Errorf("%q must begin with / or ~/", path)
	}
	return path, nil
}

// All returns the contexts, sorted by name.
func (c Contexts) All() []Context { return c.list }

// Names returns the names of the contexts, sorted.
func (c Contexts) Names() (names []string) {
	for _, one := range c.list {
		names = append(names, one.Name)
	}
	return names
}

// Get returns the context with a name.
func (c Contexts) Get(name string) (*Context, error) {
	for i := range c.list {
		if c.list[i].Name == name {
			return &c.list[i], nil
		}
	}
	if c.File == "" {
		return nil, fmt.Errorf("no context is named %q: without $HOME there are none", name)
	}
	if len(c.list) == 0 {
		return nil, fmt.Errorf("no context is named %q: %s has none", name, c.File)
	}
	return nil, fmt.Errorf("no context is named %q: %s has %s", name, c.File, strings.Join(c.Names(), ", "))
}

// Config returns the defaults with the settings of the context.
func (c Context) Config() (Config, error) { return merged(c.values) }

// Use makes a context the current one. It changes nothing else in the file.
func (c Contexts) Use(name string) error {
	if _, err := c.Get(name); err != nil {
		return err
	}
	if c.Current == name {
		return nil
	}
	text, err := c.withCurrent(name)
	if err != nil {
		return err
	}
	file, err := filepath.EvalSymlinks(c.File)
	if err != nil {
		return fmt.Errorf("%s: cannot be changed: %w", c.File, err)
	}
	return replaceFile(file, []byte(text))
}

// withCurrent returns the content of the file with another current context.
func (c Contexts) withCurrent(name string) (string, error) {
	byHand := fmt.Errorf("%s: cannot be changed by this command: write 'current: %s' there", c.File, name)
	lines := strings.SplitAfter(string(c.data), "\n")
	if c.current == nil {
		first := c.root.Content[0]
		if c.root.Style&yaml.FlowStyle != 0 || first.Column != 1 {
			return "", byHand
		}
		return strings.Join(slices.Insert(lines, first.Line-1, "current: "+name+"\n"), ""), nil
	}
	line, column := lines[c.current.Line-1], c.current.Column-1
	for _, quote := range []string{"", `"`, `'`} {
		old := quote + c.Current + quote
		if rest, ok := strings.CutPrefix(line[min(column, len(line)):], old); ok && c.Current != "" {
			lines[c.current.Line-1] = line[:column] + name + rest
			return strings.Join(lines, ""), nil
		}
	}
	return "", byHand
}

// replaceFile replaces a file in one step, and keeps its mode.
func replaceFile(path string, data []byte) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	next, err := os.CreateTemp(filepath.Dir(path), ".zkelectd-*")
	if err != nil {
		return err
	}
	_, err = next.Write(data)
	err = errors.Join(err, next.Chmod(info.Mode().Perm()), next.Sync(), next.Close())
	if err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		os.Remove(next.Name())
	}
	return err
}

// overlay puts the settings of a context over others.
func (c *Context) overlay(values map[string]found) {
	if c != nil {
		maps.Copy(values, c.values)
	}
}

// ConnectionKeys returns the settings that a context can have, in the order of the reference.
func ConnectionKeys() (names []string) {
	for _, k := range Keys() {
		if short, ok := strings.CutPrefix(k.Name, zookeeperSection); ok && !slices.Contains(daemonOnly, short) {
			names = append(names, k.Name)
		}
	}
	return names
}

// Text returns the value of a setting as YAML on one line.
func (c Config) Text(key string) string { return inline(c.settings()[key]) }
