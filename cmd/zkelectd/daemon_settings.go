package main

import (
	"cmp"
	"errors"
	"log/slog"
	"strings"

	"zkelectd/internal/config"
	"zkelectd/internal/host"
)

// daemonSettings are the configuration that a daemon runs with, and the contents of the files that it names.
type daemonSettings struct {
	from     config.Sources
	cfg      config.Config
	access   apiAccess
	content  []byte // of the configuration file; nil if there is none, or if it is invalid
	refusal  error  // why this daemon does not run with the files
	fallback string // the source of the configuration that it runs with instead
}

// readSettings reads the settings of a daemon that starts. If the guard has restarted it, last is the last good content of the
// configuration file, and files that have become invalid do not keep the daemon from working: it runs with last, and without
// the HTTP API if files of that are invalid. At a first start last is nil, and everything invalid is an error.
func readSettings(from config.Sources, last []byte) (*daemonSettings, error) {
	s := &daemonSettings{from: from}
	var err error
	if s.cfg, s.content, err = config.LoadContent(from); err != nil {
		if last == nil {
			return nil, err
		}
		older := from
		older.Content = last
		s.refusal, s.fallback = err, "the last good configuration"
		if s.cfg, err = config.Load(older); err != nil {
			return nil, s.refusal
		}
	}
	if s.access, err = readAPIAccess(s.cfg); err != nil {
		if last == nil {
			return nil, err
		}
		s.cfg.HTTP.Listen, s.access = "", apiAccess{}
		s.refusal, s.fallback = errors.Join(s.refusal, err), cmp.Or(s.fallback, "the configuration file")+", without the HTTP API"
	}
	return s, nil
}

// warn logs why the configuration was refused, and what the daemon runs with instead.
func (s *daemonSettings) warn(log *slog.Logger) {
	if s.refusal == nil {
		return
	}
	log.Error("the daemon was restarted, but its configuration is invalid: correct it, then run 'zkelectd reload'",
		"file", s.from.File, "errors", strings.ReplaceAll(s.refusal.Error(), "\n", "; "), "runs_with", s.fallback)
}

// reload reads the settings again. If they are accepted, they are in s, and commit is called to put them in force.
func (s *daemonSettings) reload(commit func()) (host.Reloaded, error) {
	next, content, err := config.LoadContent(s.from)
	if err != nil {
		return host.Reloaded{}, err
	}
	access, err := readAPIAccess(next)
	if err != nil {
		return host.Reloaded{}, err
	}
	r := host.Reloaded{Config: next, Commit: func() {
		s.access.tokens, s.access.named, s.access.hosts, s.content = access.tokens, access.named, access.hosts, content
		commit()
	}}
	if !access.tokens.Equal(s.access.tokens) {
		r.Changed = append(r.Changed, "http.token_file")
	}
	return r, nil
}
