package fencer

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"zkelectd/internal/sys/suggest"
	"zkelectd/internal/work/command"
	"zkelectd/internal/work/workenv"
)

// metadata is what an agent says about itself.
type metadata struct {
	XMLName    xml.Name    `xml:"resource-agent"`
	Parameters []parameter `xml:"parameters>parameter"`
	Actions    []struct {
		Name string `xml:"name,attr"`
	} `xml:"actions>action"`
}

// parameter is one option of an agent.
type parameter struct {
	Name      string `xml:"name,attr"`
	Required  string `xml:"required,attr"`
	Obsoletes string `xml:"obsoletes,attr"`
	Content   struct {
		Type    string  `xml:"type,attr"`
		Default *string `xml:"default,attr"`
		Options []struct {
			Value string `xml:"value,attr"`
		} `xml:"option"`
	} `xml:"content"`
}

// has reports whether the agent has an action.
func (m metadata) has(action string) bool {
	for _, a := range m.Actions {
		if a.Name == action {
			return true
		}
	}
	return false
}

// metadata asks the agent about itself.
func (l *Level) metadata(ctx context.Context, run Runner) (m metadata, err error) {
	path, err := l.path()
	if err != nil {
		return m, err
	}
	r, err := run(ctx, command.Command{Argv: []string{path}, Env: workenv.Clean(os.Environ()),
		Input: []byte("action=metadata\n")})
	if err == nil {
		err = r.check()
	}
	if err != nil {
		return m, fmt.Errorf("action=metadata failed: %w", err)
	}
	if err := xml.Unmarshal([]byte(r.Output), &m); err != nil {
		return metadata{}, errors.New("action=metadata does not print what a fence agent prints" + r.text())
	}
	if len(m.Parameters) == 0 || len(m.Actions) == 0 {
		return metadata{}, errors.New("action=metadata lists no parameters or no actions")
	}
	return m, nil
}

// given are options that nobody has to set: zkelectd sets them, or an agent says that they are required although it has
// a default.
var given = []string{"action", "nodename"}

// validate returns an error for each option of a node that the agent does not know, and for each that it lacks.
func (m metadata) validate(options map[string]string) (errs []string) {
	byName := make(map[string]parameter)
	for _, p := range m.Parameters {
		byName[p.Name] = p
	}
	for _, name := range slices.Sorted(maps.Keys(options)) {
		p, known := byName[name]
		if !known {
			errs = append(errs, fmt.Sprintf("%s is not an option of the agent%s", name,
				suggest.DidYouMean(name, slices.Sorted(maps.Keys(byName)))))
			continue
		}
		if err := p.checkValue(options[name]); err != nil {
			errs = append(errs, fmt.Sprintf("%s: %v", name, err))
		}
	}
	for _, p := range m.Parameters {
		if p.Required != "1" || p.Content.Default != nil || slices.Contains(given, p.Name) || m.isSet(p, options) {
			continue
		}
		errs = append(errs, p.Name+" is required by the agent, and not set")
	}
	return errs
}

// isSet reports whether an option, or the same one by its other name, is set.
func (m metadata) isSet(p parameter, options map[string]string) bool {
	if _, ok := options[p.Name]; ok {
		return true
	}
	for _, other := range m.Parameters {
		if _, ok := options[other.Name]; ok && (other.Obsoletes == p.Name || p.Obsoletes == other.Name) {
			return true
		}
	}
	return false
}

// checkValue returns an error if the agent would not accept the value.
func (p parameter) checkValue(value string) error {
	switch p.Content.Type {
	case "integer", "second":
		if _, err := strconv.Atoi(strings.TrimSuffix(value, "s")); err != nil {
			return fmt.Errorf("%q is not an integer", value)
		}
	case "boolean":
		if !slices.Contains([]string{"0", "1", "true", "false", "yes", "no", "on", "off"}, strings.ToLower(value)) {
			return fmt.Errorf("%q is neither 1 nor 0", value)
		}
	case "select":
		var all []string
		for _, o := range p.Content.Options {
			all = append(all, o.Value)
		}
		if len(all) > 0 && !slices.Contains(all, value) {
			return fmt.Errorf("%q is not one of %s", value, strings.Join(all, ", "))
		}
	}
	return nil
}
