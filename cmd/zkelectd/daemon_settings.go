package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"zkelectd/internal/config"
	"zkelectd/internal/host"
)

// daemonSettings are the configuration that a daemon runs with, and the contents of the files that it names.
type daemonSettings struct {
	from     config.Sources
	host     config.Host
	access   apiAccess
	content  []byte // of the configuration files; nil if there are none, or if they are invalid
	refusal  error  // why this daemon does not run with the files, or with some of them
	fallback string // the source of the configuration that it runs with instead
	// refusedGroups are the groups that refusal is about; nil if it is about all of them.
	refusedGroups map[string]error
	// allowRemovals is set if the next reload may remove any number of groups.
	allowRemovals atomic.Bool
}

// readSettings reads the settings of a daemon that starts. If the guard has restarted it, last is the last good content of the
// configuration files, and files that have become invalid do not keep the daemon from working: it runs with last, and without
// the HTTP API if files of that are invalid. At a first start last is nil, and everything invalid is an error, except for files of
// some of many groups.
func readSettings(from config.Sources, last []byte) (*daemonSettings, error) {
	s := &daemonSettings{from: from}
	running, lastErr := lastHost(from, last)
	var before config.Host
	if running.Dir != "" {
		before = running // as at a reload: a file that is gone or invalid does not end its group
	}
	first, err := config.ReloadHost(from, before, false)
	if err == nil && from.Once && first.Host.Config.Reload.Watch {
		err = fmt.Errorf("reload.watch: %s is a pipe, which can be read only once: use a file", from.File)
	}
	if !from.Once {
		s.from.Content = nil // a reload reads the file
	}
	if err == nil && len(first.Host.Groups) == 0 {
		err = errors.Join(slices.Collect(maps.Values(first.Refused))...)
	}
	switch {
	case err == nil:
		s.host, s.content = first.Host, first.Content
		if s.refusal = groupsError(first.Refused); s.refusal != nil {
			s.refusedGroups = first.Refused
			s.fallback = "the configuration files, apart from those of these groups"
		}
	case last == nil || lastErr != nil:
		return nil, err
	default:
		s.host, s.refusal, s.fallback = running, err, "the last good configuration"
	}
	if s.access, err = readAPIAccess(s.host.Config); err != nil {
		if last == nil {
			return nil, err
		}
		s.host.Config.HTTP.Listen, s.access = "", apiAccess{}
		s.refusal, s.fallback = errors.Join(s.refusal, err), cmp.Or(s.fallback, "the configuration file")+", without the HTTP API"
	}
	return s, nil
}

// lastHost returns the last good configuration; zero if there is none.
func lastHost(from config.Sources, last []byte) (config.Host, error) {
	if last == nil {
		return config.Host{}, nil
	}
	from.Content = last
	h, _, err := config.LoadHost(from)
	return h, err
}

// groupsError joins the errors of group files that were refused; nil for none.
func groupsError(refused map[string]error) error {
	var all []error
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		all = append(all, fmt.Errorf("group %s: %w", name, refused[name]))
	}
	return errors.Join(all...)
}

// warn logs which files are ignored, why the configuration was refused, and what the daemon runs with instead.
func (s *daemonSettings) warn(log *slog.Logger) {
	for _, ignored := range s.host.Warnings {
		log.Warn("a file in groups_dir is not a group", "file", ignored)
	}
	if unset := s.host.Unset; len(unset) > 0 {
		var values []any
		for _, key := range unset {
			values = append(values, key, s.host.Config.Setting(key))
		}
		log.Warn("the configuration leaves out settings that say which group to join: their defaults are used", values...)
	}
	if s.refusal == nil {
		return
	}
	log.Error("this daemon has started, but its configuration is invalid: correct it, then run 'zkelectd reload'",
		"file", s.from.File, "errors", strings.ReplaceAll(s.refusal.Error(), "\n", "; "), "runs_with", s.fallback)
}

// reload reads the settings again. If they are accepted, they are in s, and commit is called to put them in force.
func (s *daemonSettings) reload(running config.Host, commit func()) (host.Reloaded, error) {
	if err := s.from.CheckReload(); err != nil {
		return host.Reloaded{}, err
	}
	next, err := config.ReloadHost(s.from, running, s.allowRemovals.Swap(false))
	if err != nil {
		return host.Reloaded{}, err
	}
	access, err := readAPIAccess(next.Host.Config)
	if err != nil {
		return host.Reloaded{}, err
	}
	r := host.Reloaded{Reloaded: next, Commit: func(config.Host) {
		s.access.tokens, s.access.named, s.access.hosts, s.content = access.tokens, access.named, access.hosts, next.Content
		commit()
	}}
	if !access.tokens.Equal(s.access.tokens) {
		r.Files = append(r.Files, "http.token_file")
	}
	return r, nil
}
