package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"zkelectd/internal/cluster"
	"zkelectd/internal/sys/secretfile"
	"zkelectd/internal/sys/suggest"
)

// found is a value with its source.
type found struct {
	source string
	value  any
}

// maxFile bounds how much is read from a file, in bytes.
const maxFile = 1 << 20

// pipeTimeout bounds how long a configuration that is a pipe, as in --config <(...), may take.
const pipeTimeout = 30 * time.Second

// readFile returns the content of a file, or nil if it cannot be read.
func readFile(path string, errs *Errors) []byte {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // else a FIFO without a writer would block
	if err != nil {
		errs.add(path, "", "cannot be read: %v", errors.Unwrap(err))
		return nil
	}
	defer file.Close()
	_ = file.SetReadDeadline(time.Now().Add(pipeTimeout)) // of a regular file it has none, and needs none
	data, err := readTrusted(path, file)
	if err != nil {
		errs.add(path, "", "%v", err)
		return nil
	}
	return data
}

// readTrusted returns the content of an open file that no other user can change: it contains commands to run.
func readTrusted(path string, file *os.File) ([]byte, error) {
	if err := secretfile.CheckWriters(path, file); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot be read: %w", err)
	case len(data) > maxFile:
		return nil, fmt.Errorf("is larger than %d bytes: it is not a configuration file", maxFile)
	}
	return data, nil
}

// parseFile returns the settings in the content of a YAML file, and those in its section defaults.
func parseFile(path string, data []byte, errs *Errors) (settings, defaults map[string]found) {
	w := newWalker(path, errs)
	w.defaults = make(map[string]found)
	w.read(data, "is empty: write {} if flags, environment variables and defaults are to be all settings")
	return w.out, w.defaults
}

// read collects the settings in the content of a YAML file. empty is the error if it has none: an editor, a full disk
// or a failed command in <(...) may have left it empty.
func (w *walker) read(data []byte, empty string) {
	before := len(*w.errs)
	root := rootNode(w.path, data, w.errs)
	switch {
	case root != nil && root.Tag != "!!null":
		w.section("", root)
	case len(*w.errs) == before:
		w.errs.add(w.path, "", "%s", empty)
	}
}

// rootNode returns the root of the only YAML document in the content of a file; nil if there is none.
func rootNode(path string, data []byte, errs *Errors) *yaml.Node {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := decoder.Decode(&doc); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		errs.add(path, "", "is not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
		return nil
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		errs.add(path, "", "contains more than one YAML document")
	}
	return doc.Content[0]
}

// walker collects the settings of a YAML file. It walks the nodes itself, so that every error has a line and the keys
// of maps keep their case; viper would change them to lower case.
type walker struct {
	path  string
	keys  map[string]Key
	names []string
	out   map[string]found
	errs  *Errors
	// defaults receives the settings in the section defaults; nil if there is no such section.
	defaults map[string]found
	// within is the prefix of names in errors.
	within string
	// refuse returns why a setting is not allowed here, "" if it is; nil allows all.
	refuse func(Key) string
}

func newWalker(path string, errs *Errors) walker {
	w := walker{path: path, keys: keysByName(), out: make(map[string]found), errs: errs}
	w.names = slices.Collect(maps.Keys(w.keys))
	return w
}

// defaultsSection is the section of the main file with the settings of all groups.
const defaultsSection = "defaults"

// readDefaults collects the settings in the section defaults.
func (w *walker) readDefaults(n *yaml.Node) {
	d := newWalker(w.path, w.errs)
	d.within, d.out = defaultsSection+".", w.defaults
	d.refuse = func(k Key) string {
		if k.Scope != GroupScope {
			return "is a setting of the host: write it outside of defaults"
		}
		return ""
	}
	d.section("", n)
}

func (w *walker) at(n *yaml.Node) string { return fmt.Sprintf("%s:%d", w.path, n.Line) }

func (w *walker) section(prefix string, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return
	}
	if n.Kind != yaml.MappingNode {
		w.errs.add(w.at(n), strings.TrimSuffix(w.within+prefix, "."), "must be a section of keys")
		return
	}
	seen := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := prefix+n.Content[i].Value, n.Content[i+1]
		if seen[name] {
			w.errs.add(w.at(n.Content[i]), w.within+name, "is given twice")
			continue
		}
		seen[name] = true
		key, known := w.keys[name]
		switch {
		case known:
			w.setting(key, value)
		case name == defaultsSection && w.defaults != nil:
			w.readDefaults(value)
		case w.isSection(name):
			w.section(name+".", value)
		default:
			advice := ""
			if near := suggest.Nearest(name, w.candidates()); near != "" {
				advice = fmt.Sprintf("; did you mean %s?", w.within+near)
			}
			w.errs.add(w.at(n.Content[i]), w.within+name, "is not a setting%s", advice)
		}
	}
}

func (w *walker) setting(key Key, value *yaml.Node) {
	if w.refuse != nil {
		if reason := w.refuse(key); reason != "" {
			w.errs.add(w.at(value), w.within+key.Name, "%s", reason)
			return
		}
	}
	v, err := fromNode(key.Kind, value)
	if err != nil {
		w.errs.add(w.at(value), w.within+key.Name, "%v", err)
		return
	}
	w.out[key.Name] = found{w.at(value), v}
}

func (w *walker) isSection(name string) bool {
	return slices.ContainsFunc(w.names, func(k string) bool { return strings.HasPrefix(k, name+".") })
}

// candidates returns all names of keys and sections that are allowed, for suggestions.
func (w *walker) candidates() []string {
	names := slices.DeleteFunc(slices.Clone(w.names),
		func(name string) bool { return w.refuse != nil && w.refuse(w.keys[name]) != "" })
	all := slices.Clone(names)
	if w.defaults != nil {
		all = append(all, defaultsSection)
	}
	for _, name := range names {
		for i, c := range name {
			if c == '.' {
				all = append(all, name[:i])
			}
		}
	}
	slices.Sort(all)
	return all
}

// fromNode returns a value of a kind from a YAML node. It does not use the types that YAML derives: 010 is ten, and yes
// is text.
func fromNode(k kind, n *yaml.Node) (any, error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch k {
	case list:
		if n.Kind != yaml.SequenceNode {
			return nil, fmt.Errorf("must be a list, as in [a, b]")
		}
		items := make([]string, 0, len(n.Content))
		for _, c := range n.Content {
			if c.Kind != yaml.ScalarNode {
				return nil, fmt.Errorf("must be a list of strings")
			}
			items = append(items, c.Value)
		}
		return items, nil
	case texts, integers:
		if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
			return fromPairs(k, nil)
		}
		if n.Kind != yaml.MappingNode {
			return nil, fmt.Errorf("must be a map, as in {a: b}")
		}
		var pairs [][2]string
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i+1].Kind != yaml.ScalarNode {
				return nil, fmt.Errorf("%s: must be a single value", n.Content[i].Value)
			}
			pairs = append(pairs, [2]string{n.Content[i].Value, n.Content[i+1].Value})
		}
		return fromPairs(k, pairs)
	case choices:
		return strategies(n)
	case tables:
		return tablesOf(n)
	case levels:
		return levelsOf(n)
	}
	if n.Kind != yaml.ScalarNode {
		return nil, fmt.Errorf("must be a %s", k)
	}
	if n.Tag == "!!null" && k != text {
		return nil, fmt.Errorf("must be a %s, not empty", k)
	}
	return fromText(k, n.Value)
}

func strategies(n *yaml.Node) ([]cluster.Strategy, error) {
	if n.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("must be a list, as in [{when: 'cause == \"failure\"', use: other-site}, {use: priority}]")
	}
	return structsOf[cluster.Strategy](n, "must be a map with when and use")
}

// structsOf returns the structs in a YAML list, see structOf.
func structsOf[T any](n *yaml.Node, wrong string) ([]T, error) {
	all := make([]T, 0, len(n.Content))
	for i, item := range n.Content {
		one, err := structOf[T](item, wrong)
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
		all = append(all, one)
	}
	return all, nil
}

// structOf returns the struct in a YAML node, whose fields have the tag yaml. wrong is the error if the node is no map.
func structOf[T any](n *yaml.Node, wrong string) (v T, err error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.MappingNode {
		return v, errors.New(wrong)
	}
	fields := make(map[string]reflect.Value)
	for i, f := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		fields[name] = reflect.ValueOf(&v).Elem().Field(i)
	}
	seen := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		field, known := fields[name]
		if !known {
			names := slices.Sorted(maps.Keys(fields))
			return v, fmt.Errorf("%q is none of %s%s", name, strings.Join(names, ", "), suggest.DidYouMean(name, names))
		}
		if seen[name] {
			return v, fmt.Errorf("%q is given twice", name)
		}
		seen[name] = true
		k, _ := kindOf(field.Type())
		value, err := fromNode(k, n.Content[i+1])
		if err != nil {
			return v, fmt.Errorf("%s: %w", name, err)
		}
		field.Set(reflect.ValueOf(value))
	}
	return v, nil
}

// marshal returns the node for a value, in the form in which people write it.
func marshal(v any) *yaml.Node {
	if d, ok := v.(time.Duration); ok {
		v = d.String()
	}
	n := new(yaml.Node)
	_ = n.Encode(v) // never fails: all settings are plain values
	switch n.Kind {
	case yaml.SequenceNode, yaml.MappingNode:
		n.Style = yaml.FlowStyle
	}
	return n
}

// fromText parses a value from an environment variable or a flag.
func fromText(k kind, s string) (any, error) {
	switch k {
	case text:
		return s, nil
	case integer:
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%q is not an integer (32 bits)", s)
		}
		return int(n), nil
	case number:
		n, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
			return nil, fmt.Errorf("%q is not a number, as in 1.5", s)
		}
		return n, nil
	case boolean:
		if s != "true" && s != "false" {
			return nil, fmt.Errorf("%q is neither true nor false", s)
		}
		return s == "true", nil
	case duration:
		d, err := time.ParseDuration(s)
		if _, bare := strconv.ParseFloat(s, 64); err != nil && bare == nil {
			return nil, fmt.Errorf("%q is not a duration: write a unit, as in %ss", s, s)
		}
		if err != nil || d < 0 {
			return nil, fmt.Errorf("%q is not a duration, as in 500ms, 6s or 1m30s", s)
		}
		return d, nil
	case list:
		if s == "" {
			return []string{}, nil
		}
		return strings.Split(s, ","), nil
	case choices, levels:
		if s == "" {
			return map[kind]any{choices: []cluster.Strategy{}, levels: []FencingLevel{}}[k], nil
		}
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(s), &doc); err != nil || len(doc.Content) != 1 {
			return nil, fmt.Errorf("%q is not a list in YAML", s)
		}
		return fromNode(k, doc.Content[0])
	}
	var pairs [][2]string
	for item := range strings.SplitSeq(s, ",") {
		if item == "" {
			continue
		}
		key, value, ok := strings.Cut(item, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not key=value", item)
		}
		pairs = append(pairs, [2]string{key, value})
	}
	return fromPairs(k, pairs)
}

// fromPairs returns a map of the type for k. Viper does not change the keys of maps that have a concrete type.
func fromPairs(k kind, pairs [][2]string) (any, error) {
	words, numbers := make(map[string]string), make(map[string]int)
	for _, p := range pairs {
		if _, twice := words[p[0]]; twice {
			return nil, fmt.Errorf("%q is given twice", p[0])
		}
		words[p[0]] = p[1]
		if k != integers {
			continue
		}
		n, err := fromText(integer, p[1])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p[0], err)
		}
		numbers[p[0]] = n.(int)
	}
	if k == integers {
		return numbers, nil
	}
	return words, nil
}
