package config

import (
	"net/url"
	"reflect"
	"slices"
	"strings"
)

// notShown stands for what may be secret.
const notShown = "(not shown)"

// Redacted returns the configuration without what may be secret: the values of variables, the arguments of programs, and the users,
// passwords and queries in URLs. The settings for secrets name files, and remain.
func (c Config) Redacted() Config {
	fields := c.fields()
	for _, p := range c.Programs() {
		argv := []string{p.Name}
		for range fields[p.Key].Len() - 1 {
			argv = append(argv, notShown)
		}
		fields[p.Key].Set(reflect.ValueOf(argv))
	}
	c.Fencing.Levels = slices.Clone(c.Fencing.Levels)
	for i, l := range c.Fencing.Levels {
		c.Fencing.Levels[i] = l.redacted()
	}
	env := make(map[string]string)
	for name := range c.Child.Env {
		env[name] = notShown
	}
	c.Child.Env = env
	for _, f := range fields {
		if f.Kind() == reflect.String && strings.Contains(f.String(), "://") {
			f.SetString(redactedURL(f.String()))
		}
	}
	return c
}

// Secrets returns the texts that [Config.Redacted] leaves out.
func (c Config) Secrets() []string {
	var all []string
	for _, value := range c.Child.Env {
		all = append(all, value)
	}
	fields := c.fields()
	for _, p := range c.Programs() {
		if argv, ok := fields[p.Key].Interface().([]string); ok {
			all = append(all, argv[1:]...)
		}
	}
	for _, l := range c.Fencing.Levels {
		all = append(all, l.Command[min(1, len(l.Command)):]...)
	}
	for _, f := range fields {
		if f.Kind() != reflect.String || !strings.Contains(f.String(), "://") {
			continue
		}
		if u, err := url.Parse(f.String()); err == nil {
			password, _ := u.User.Password()
			all = append(all, u.User.String(), password, u.User.Username(), u.RawQuery)
		}
	}
	return all
}

// redactedURL returns a URL without its user and its query.
func redactedURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return notShown
	}
	if u.User != nil {
		u.User = url.User("not-shown")
	}
	if u.RawQuery != "" {
		u.RawQuery = "not-shown"
	}
	return u.String()
}
