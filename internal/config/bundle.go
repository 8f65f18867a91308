package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
)

// bundleContent is a host's configuration with all its groups. Each text is complete, apart from values that are the default.
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
	data, err := json.Marshal(b)
	if err != nil {
		return nil // cannot happen: strings only
	}
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
		h.Groups = append(h.Groups, Group{Name: g.Name, File: g.File, Config: read("the last good configuration of group "+g.Name, g.Config)})
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
		return reflect.DeepEqual(v, standard[key]) || (empty(v) && empty(standard[key]))
	})
	return yamlOf(settings, nil, func(key string) bool { return settings[key] != nil })
}
