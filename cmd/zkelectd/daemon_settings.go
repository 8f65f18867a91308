package main

import (
	"cmp"
	"errors"
	"log/slog"
	"strings"

	"zkelectd/internal/config"
)

// daemonSettings are the configuration that a daemon runs with, and what the files that it names hold.
type daemonSettings struct {
	from    config.Sources
	cfg     config.Config
	access  apiAccess
	content []byte // of the configuration file; nil if there is none, or it was refused
	refused error  // why the files are not what this daemon runs with
	running string // what it runs with instead, in words
}

// readSettings reads the settings of a daemon that starts. Where the guard has started it again, last is the last good content
// of the configuration file, and files that are damaged by now do not keep the daemon from working: it runs with that, and
// without an HTTP API if it is the files of that which are damaged. At a first start last is nil, and every fault is an error.
func readSettings(from config.Sources, last []byte) (*daemonSettings, error) {
	s := &daemonSettings{from: from}
	var err error
	if s.cfg, s.content, err = config.LoadContent(from); err != nil {
		if last == nil {
			return nil, err
		}
		older := from
		older.Content = last
		s.refused, s.running = err, "the last good configuration, which the guard has kept"
		if s.cfg, err = config.Load(older); err != nil {
			return nil, s.refused
		}
	}
	if s.access, err = readAPIAccess(s.cfg); err != nil {
		if last == nil {
			return nil, err
		}
		s.cfg.HTTP.Listen, s.access = "", apiAccess{}
		s.refused, s.running = errors.Join(s.refused, err), cmp.Or(s.running, "the configuration file")+", without the HTTP API"
	}
	return s, nil
}

// warn logs what was refused, and what runs instead.
func (s *daemonSettings) warn(log *slog.Logger) {
	if s.refused == nil {
		return
	}
	log.Error("the daemon was started again with a configuration that is refused: repair it, then run 'zkelectd reload'",
		"file", s.from.File, "faults", strings.ReplaceAll(s.refused.Error(), "\n", "; "), "runs_with", s.running)
}

// reload reads the settings again, and names those whose files hold something else. They are in s from then on, for
// [daemon.Options.Taken].
func (s *daemonSettings) reload() (next config.Config, files []string, err error) {
	next, content, err := config.LoadContent(s.from)
	if err != nil {
		return next, nil, err
	}
	again, err := readAPIAccess(next)
	if err != nil {
		return next, nil, err
	}
	if !again.tokens.Equal(s.access.tokens) {
		files = append(files, "http.token_file")
	}
	s.access.tokens, s.access.named, s.access.hosts, s.content = again.tokens, again.named, again.hosts, content
	return next, files, nil
}
