package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"zkelectd/internal/config"
	"zkelectd/internal/host"
	"zkelectd/internal/operator"
	"zkelectd/internal/sys/secretfile"
	"zkelectd/internal/web"
)

// settings are the configuration that a daemon runs with, and the contents of the files that it names.
type settings struct {
	from     config.Sources
	host     config.Host
	access   apiAccess
	refusal  error  // why this daemon does not run with the files, or with some of them
	fallback string // the source of the configuration that it runs with instead
	// refusedGroups are the groups that refusal is about; nil if it is about all of them.
	refusedGroups map[string]error
	create        bool // groups that this host has never been in
	// restored is set if the configuration is that of a daemon that has crashed. The files may have changed since:
	// unapplied lists the settings and groups that a reload would change, pending the settings that need a restart.
	restored           bool
	unapplied, pending []string
	// watched gets the files whose changes cause a reload; nil without reload.watch.
	watched chan []string
	// unserved is http.listen if this daemon cannot serve there, as files of the API are invalid; else nil.
	unserved *string
}

// lastGood names the configuration that a daemon runs with after a crash.
const lastGood = "the last good configuration"

// readSettings returns the settings of a daemon that starts. last is the configuration that was in force when an
// earlier daemon crashed, which nobody has stopped: the files must not change by that what no reload could. It is nil
// at a first start, which reads the files: then everything invalid is an error, except for files of some of many
// groups.
func readSettings(from config.Sources, last []byte) (*settings, error) {
	s := &settings{from: from}
	if !from.Once {
		s.from.Content = nil // a reload reads the file
	}
	if last != nil {
		return s, s.restore(last)
	}
	first, err := config.ReloadHost(from, config.Host{}, false)
	if err == nil {
		err = CheckWatch(from, first.Host)
	}
	if err == nil && len(first.Host.Groups) == 0 {
		err = errors.Join(slices.Collect(maps.Values(first.Refused))...)
	}
	if err != nil {
		return nil, err
	}
	s.host = first.Host
	if s.refusal = groupsError(first.Refused); s.refusal != nil {
		s.refusedGroups, s.fallback = first.Refused, "the configuration files, apart from those of these groups"
	}
	s.access, err = readAPIAccess(s.host.Config)
	return s, err
}

// CheckWatch returns an error if changes of the configuration file cannot be seen.
func CheckWatch(from config.Sources, h config.Host) error {
	if !from.Once || !h.Config.Reload.Watch {
		return nil
	}
	return fmt.Errorf("reload.watch: %s is a pipe, which can be read only once: use a file", from.File)
}

// restore makes last the configuration, and finds out how the files differ from it. What is wrong with them does not
// keep the daemon from working. It works without the HTTP API if files of that are invalid.
func (s *settings) restore(last []byte) (err error) {
	if s.host, err = config.Unbundle(last); err != nil {
		return err
	}
	s.restored, s.fallback = true, lastGood
	if files, err := config.ReloadHost(s.from, s.host, false); err != nil {
		s.refusal = err
	} else {
		if s.refusal = groupsError(files.Refused); s.refusal != nil {
			s.refusedGroups = files.Refused
		}
		s.unapplied, s.pending = config.Diff(s.host.Config, files.Host.Config)
		if s.host.Dir != "" {
			for _, name := range slices.Concat(files.Added, files.Changed, files.Removed) {
				s.unapplied = append(s.unapplied, "group "+name)
			}
		}
	}
	if s.access, err = readAPIAccess(s.host.Config); err != nil {
		listen := s.host.Config.HTTP.Listen
		s.unserved, s.host.Config.HTTP.Listen, s.access = &listen, config.ListenNone, apiAccess{}
		s.refusal, s.fallback = errors.Join(s.refusal, err), lastGood+", without the HTTP API"
	}
	return nil
}

// watch makes the files that a configuration in force names the watched ones. It is called by one goroutine at a time.
func (s *settings) watch(inForce config.Config) {
	if !inForce.Reload.Watch {
		return
	}
	if s.watched == nil { // at the start
		s.watched = make(chan []string, 1)
	}
	select {
	case <-s.watched: // replaced
	default:
	}
	s.watched <- inForce.WatchedFiles(s.from.File, os.Getenv)
}

// bundle returns a configuration in force for the next daemon.
func (s *settings) bundle(inForce config.Host) []byte {
	if s.unserved != nil {
		inForce.Config.HTTP.Listen = *s.unserved
	}
	return config.Bundle(inForce)
}

// groupsError joins the errors of group files that were refused; nil for none.
func groupsError(refused map[string]error) error {
	var all []error
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		all = append(all, fmt.Errorf("group %s: %w", name, refused[name]))
	}
	return errors.Join(all...)
}

// warn logs which files are ignored, why the configuration was refused, what the daemon runs with instead, and what is
// not applied.
func (s *settings) warn(log *slog.Logger) {
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
	if s.restored {
		log.Warn("zkelectd was not stopped, but crashed or was killed: this daemon starts with the configuration " +
			"that was in force then")
	}
	if len(s.unapplied) > 0 {
		log.Warn("these changes of the configuration files are not in force: run 'zkelectd reload'", "changes",
			strings.Join(s.unapplied, ", "))
	}
	if len(s.pending) > 0 {
		log.Warn("these settings need a restart", "keys", strings.Join(s.pending, ", "))
	}
	if s.refusal == nil {
		return
	}
	log.Error("this daemon has started, but its configuration is invalid: correct it, then run 'zkelectd reload'",
		"file", s.from.File, "errors", strings.ReplaceAll(s.refusal.Error(), "\n", "; "), "runs_with", s.fallback)
}

// reload reads the settings again. If they are accepted, they are in s, and commit is called to put them in force.
func (s *settings) reload(running config.Host, allowRemovals bool, commit func(inForce config.Host),
) (host.Reloaded, error) {
	if err := s.from.CheckReload(); err != nil {
		return host.Reloaded{}, err
	}
	next, err := config.ReloadHost(s.from, running, allowRemovals)
	if err != nil {
		return host.Reloaded{}, err
	}
	access, err := readAPIAccess(next.Host.Config)
	if err != nil {
		return host.Reloaded{}, err
	}
	r := host.Reloaded{Reloaded: next, Commit: func(inForce config.Host) {
		s.access.tokens, s.access.named, s.access.hosts = access.tokens, access.named, access.hosts
		commit(inForce)
	}}
	if !access.tokens.Equal(s.access.tokens) {
		r.Files = append(r.Files, "http.token_file")
	}
	return r, nil
}

// namedFile returns the absolute path of the configuration file; empty if there is none that a command can read.
func (s *settings) namedFile() string {
	if s.from.File == "" || s.from.Once {
		return ""
	}
	file, err := filepath.Abs(s.from.File)
	if err != nil {
		return "" // there is no working directory any more
	}
	return file
}

// apiAccess holds the API's access settings, read from the files that the configuration names.
type apiAccess struct {
	public string // the address for other hosts, "" for none
	config web.Config
	tokens web.Tokens
	hosts  []string // http.allowed_hosts
	named  bool     // http.token_file is set
}

func readAPIAccess(cfg config.Config) (apiAccess, error) {
	path, _ := config.SecretFile(cfg.HTTP.WebConfig, os.Getenv)
	settings, err := web.ReadConfig(path)
	path, systemd := config.SecretFile(cfg.HTTP.TokenFile, os.Getenv)
	tokens, tokenErr := web.ReadTokens(path, systemd)
	return apiAccess{cfg.HTTP.Public(false), settings, tokens, cfg.HTTP.AllowedHosts, cfg.HTTP.TokenFile != ""},
		errors.Join(err, tokenErr)
}

// CheckFiles checks the files that a configuration names.
func CheckFiles(cfg config.Config) error {
	_, err := readAPIAccess(cfg)
	return errors.Join(operator.Access(cfg, os.Getenv).Check(), err)
}

// warn logs a warning if tokens are sent over the network in clear text.
func (a apiAccess) warn(log *slog.Logger) {
	name, _, err := net.SplitHostPort(a.public)
	if ip := net.ParseIP(name); !a.named || err != nil || a.config.TLSEnabled() || name == "localhost" || ip.IsLoopback() {
		return
	}
	log.Warn("the tokens in http.token_file are sent over the network in clear text: set http.web_config for TLS",
		"http.listen", a.public)
}

// maxApplied bounds the configuration in force, in bytes: that of a host with as many groups as there can be.
const maxApplied = 64 << 20

// readApplied returns the configuration that was in force when guard and daemon were killed together; nil if they were
// not. file is empty without a runtime directory.
func readApplied(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	data, err := secretfile.ReadOwn(file, maxApplied)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration that was in force when zkelectd was killed: %w", err)
	}
	return data, nil
}

// writeApplied stores the configuration in force, which readApplied returns unless zkelectd is stopped before.
func writeApplied(file string, content []byte) error {
	if file == "" {
		return nil
	}
	temp, err := os.CreateTemp(filepath.Dir(file), ".zkelectd-applied-") // created with mode 0600
	if err != nil {
		return err
	}
	_, err = temp.Write(content)
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), file)
	}
	if err != nil {
		os.Remove(temp.Name())
	}
	return err
}
