package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"zkelectd/internal/cluster"
	"zkelectd/internal/secretfile"
)

// found is a value with its source.
type found struct {
	source string
	value  any
}

// maxFile bounds how much is read from a file, in bytes.
const maxFile = 1 << 20

// readFile returns the content of a file, or nil if it cannot be read.
func readFile(path string, errs *Errors) []byte {
	file, err := os.Open(path)
	if err != nil {
		errs.add(path, "", "cannot be read: %v", errors.Unwrap(err))
		return nil
	}
	defer file.Close()
	if err := secretfile.CheckWriters(path, file); err != nil { // the file contains commands to run
		errs.add(path, "", "%v", err)
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	switch {
	case err != nil:
		errs.add(path, "", "cannot be read: %v", err)
		return nil
	case len(data) > maxFile:
		errs.add(path, "", "is larger than %d bytes: it is not a configuration file", maxFile)
		return nil
	}
	return data
}

// parseFile returns the settings in the content of a YAML file. It walks the nodes itself, so that every error has a line and
// the keys of maps keep their case; viper would change them to lower case.
func parseFile(path string, data []byte, errs *Errors) map[string]found {
	out := make(map[string]found)
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := decoder.Decode(&doc); errors.Is(err, io.EOF) {
		return out
	} else if err != nil {
		errs.add(path, "", "is not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
		return out
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		errs.add(path, "", "contains more than one YAML document")
	}
	w := walker{path: path, keys: keyByName(), out: out, errs: errs}
	for k := range w.keys {
		w.names = append(w.names, k)
	}
	w.section("", doc.Content[0])
	return out
}

// walker collects the settings of a YAML file.
type walker struct {
	path  string
	keys  map[string]Key
	names []string
	out   map[string]found
	errs  *Errors
}

func (w *walker) at(n *yaml.Node) string { return fmt.Sprintf("%s:%d", w.path, n.Line) }

func (w *walker) section(prefix string, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return
	}
	if n.Kind != yaml.MappingNode {
		w.errs.add(w.at(n), strings.TrimSuffix(prefix, "."), "must be a section of keys")
		return
	}
	seen := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := prefix+n.Content[i].Value, n.Content[i+1]
		if seen[name] {
			w.errs.add(w.at(n.Content[i]), name, "is given twice")
			continue
		}
		seen[name] = true
		key, known := w.keys[name]
		switch {
		case known:
			v, err := fromNode(key.Kind, value)
			if err != nil {
				w.errs.add(w.at(value), name, "%v", err)
				continue
			}
			w.out[name] = found{w.at(value), v}
		case w.isSection(name):
			w.section(name+".", value)
		default:
			hint := ""
			if near := nearest(name, w.candidates()); near != "" {
				hint = fmt.Sprintf("; did you mean %s?", near)
			}
			w.errs.add(w.at(n.Content[i]), name, "is not a setting%s", hint)
		}
	}
}

func (w *walker) isSection(name string) bool {
	for _, k := range w.names {
		if strings.HasPrefix(k, name+".") {
			return true
		}
	}
	return false
}

// candidates returns all names of keys and sections, for suggestions.
func (w *walker) candidates() []string {
	all := slices.Clone(w.names)
	for _, name := range w.names {
		for i, c := range name {
			if c == '.' {
				all = append(all, name[:i])
			}
		}
	}
	slices.Sort(all)
	return all
}

// fromNode returns a value of a kind from a YAML node. It does not use the types that YAML derives: 010 is ten, and yes is text.
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
	list := make([]cluster.Strategy, 0, len(n.Content))
	for i, c := range n.Content {
		pairs, err := fromNode(texts, c)
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
		words := pairs.(map[string]string)
		s := cluster.Strategy{When: words["when"], Use: words["use"]}
		delete(words, "when")
		delete(words, "use")
		for word := range words {
			return nil, fmt.Errorf("[%d]: %q is neither when nor use", i, word)
		}
		list = append(list, s)
	}
	return list, nil
}

// marshal returns the node for a value, in the form in which people write it.
func marshal(v any) (*yaml.Node, error) {
	if d, ok := v.(time.Duration); ok {
		v = d.String()
	}
	n := new(yaml.Node)
	err := n.Encode(v)
	switch n.Kind {
	case yaml.SequenceNode, yaml.MappingNode:
		n.Style = yaml.FlowStyle
	}
	return n, err
}
