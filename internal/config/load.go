package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"zkelectd/internal/cluster"
	"zkelectd/internal/sys/suggest"
)

// Sources are the sources of settings. Later ones override earlier ones: defaults, File, Env, Flags, Command.
type Sources struct {
	// File is the path of a YAML file; empty for none.
	File string
	// Complete is set if File is for a command that connects, and was named for it: Env adds no credentials to its
	// servers.
	Complete bool
	// Content is used instead of reading File; nil to read it.
	Content []byte
	// Once is set by Read if File is a pipe or a device: its content cannot be read a second time.
	Once bool
	// Env is the environment, in the form of os.Environ.
	Env []string
	// Flags were registered by [RegisterFlags]; nil for none.
	Flags *pflag.FlagSet
	// Command is the part of the command line after --, which sets child.command.
	Command []string
}

// Read reads File into Content, so that several readers get the same configuration. If it fails, the error is [Errors].
func (s *Sources) Read() error {
	if s.File == "" {
		return nil
	}
	var errs Errors
	info, err := os.Stat(s.File) // before a pipe has been read to its end, after which it may be gone
	if s.Content = readFile(s.File, &errs); len(errs) > 0 {
		return errs
	}
	s.Once = err == nil && !info.Mode().IsRegular()
	return nil
}

// CheckReload returns an error if a reload cannot read the sources again.
func (s Sources) CheckReload() error {
	if !s.Once {
		return nil
	}
	return fmt.Errorf("the configuration was read from a pipe (%s), which can be read only once: restart zkelectd to "+
		"change it, or use a file", s.File)
}

// Load reads, merges and checks the sources of one group. If it fails, the error is [Errors] and Config is zero.
func Load(src Sources) (Config, error) {
	m := readMain(src)
	if m.dir != "" {
		m.errs.add(m.settings[groupsDir].source, groupsDir, "names several groups, but a configuration of one group "+
			"is needed here")
	}
	if len(m.errs) > 0 {
		return Config{}, m.errs
	}
	return m.cfg, nil
}

// merged returns the defaults, overridden by values.
func merged(values map[string]found) (Config, error) {
	v := viper.New()
	for _, k := range Keys() {
		v.SetDefault(k.Name, k.Default)
	}
	for name, f := range values {
		v.Set(name, f.value)
	}
	var cfg Config
	err := v.UnmarshalExact(&cfg, func(d *mapstructure.DecoderConfig) { d.TagName = "yaml" })
	return cfg, err
}

// workVariables are set for the leader-only work, in which commands must work too.
var workVariables = []string{
	"ZKELECTD_NODE", "ZKELECTD_SITE", "ZKELECTD_GROUP", "ZKELECTD_TERM", "ZKELECTD_ROOT", "ZKELECTD_SLOT",
	"ZKELECTD_SLOTS", "ZKELECTD_EPOCH",
	"ZKELECTD_CAUSE", "ZKELECTD_PREVIOUS_LEADER", "ZKELECTD_PREVIOUS_CLEAN",
}

func readEnv(env []string, values map[string]found, errs *Errors) {
	byEnv := make(map[string]Key)
	var names []string
	for _, k := range Keys() {
		byEnv[k.Env()] = k
		names = append(names, k.Env())
	}
	for _, kv := range env {
		name, s, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, envPrefix) || slices.Contains(workVariables, name) || name == EnvConfig {
			continue
		}
		key, known := byEnv[name]
		if !known {
			errs.add(name, "", "is not a setting%s", suggest.DidYouMean(name, names))
			continue
		}
		put(values, key, name, s, errs)
	}
}

func put(values map[string]found, key Key, source, s string, errs *Errors) {
	v, err := fromText(key.Kind, s)
	if err != nil {
		errs.add(source, key.Name, "%v", err)
		return
	}
	values[key.Name] = found{source, v}
}

// fields returns the fields of a configuration by key.
func (c *Config) fields() map[string]reflect.Value {
	out := make(map[string]reflect.Value)
	for _, k := range Keys() {
		out[k.Name] = k.Field(c)
	}
	return out
}

// with returns the configuration with other values. It is faster than merged, for many groups.
func (c Config) with(values map[string]found) Config {
	fields := c.fields()
	for name, v := range values {
		fields[name].Set(reflect.ValueOf(v.value).Convert(fields[name].Type()))
	}
	return c
}

// settings returns the values of a configuration by key.
func (c Config) settings() map[string]any {
	out := make(map[string]any)
	for key, f := range c.fields() {
		out[key] = f.Interface()
	}
	return out
}

// ApplyReload returns the configuration in force after a reload of a running daemon: next for the keys that a reload
// applies, and current for all others, which need a restart.
func ApplyReload(current, next Config) Config {
	to, from := current.fields(), next.fields()
	for _, k := range Keys() {
		if k.Reload {
			to[k.Name].Set(from[k.Name])
		}
	}
	return current
}

// Diff returns the keys in which two configurations differ: those that a reload applies, and those that need a
// restart. If b leaves the policy to the group, it has nothing in the place of the policy of a.
func Diff(a, b Config) (reload, restart []string) {
	before, after := a.settings(), b.settings()
	for _, k := range Keys() {
		x, y := before[k.Name], after[k.Name]
		if same(x, y) || b.Policy.LeftToGroup() && onlyOfRules(k.Name) {
			continue
		}
		if k.Reload {
			reload = append(reload, k.Name)
		} else {
			restart = append(restart, k.Name)
		}
	}
	return reload, restart
}

// same reports whether two values of a setting are the same: an empty list is one that is not set.
func same(x, y any) bool { return reflect.DeepEqual(x, y) || empty(x) && empty(y) }

func empty(v any) bool {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Map, reflect.Slice:
		return r.Len() == 0
	}
	return false
}

// EnvConfig is the environment variable that names the configuration file of a command.
const EnvConfig = envPrefix + "CONFIG"

// Places are where a command looks for its configuration.
type Places struct {
	// HostFile is the configuration file of this host's daemon, which is read if nothing else says how to connect.
	HostFile string
	Getenv   func(string) string
	// Explicit is the file that a flag names.
	Explicit string
	// Argument is a file that the command was given for another purpose; it counts if it says how to connect.
	Argument string
	// HostOnly is set for a command about the daemon of this host.
	HostOnly bool
	// Enough is the setting that makes other places unnecessary, if a flag or the environment has it; by default the
	// servers.
	Enough string
}

// Find adds to src the file from which a command takes what flags and environment do not say: exactly one, as its
// servers and its credentials belong together. A file that nobody has named for this command is left out if a flag or
// the environment names the servers. Credentials of one source for servers of another are refused when the sources are
// read.
func (p Places) Find(src Sources) (Sources, error) {
	switch named := p.Getenv(EnvConfig); {
	case p.Explicit != "":
		src.File, src.Complete = p.Explicit, !p.HostOnly && p.Explicit != p.HostFile
	case p.Argument != "" && saysHowToConnect(p.Argument):
		src.File, src.Complete = p.Argument, true
	case named != "":
		src.File = named
	case !src.have(cmp.Or(p.Enough, serversKey)):
		var err error
		src.File, err = p.hostFile()
		return src, err
	}
	return src, nil
}

// have reports whether a flag or the environment has a setting.
func (src Sources) have(key string) bool {
	values := make(map[string]found)
	var errs Errors // reported when the sources are read
	readEnv(src.Env, values, &errs)
	readFlags(src.Flags, values, &errs)
	_, ok := values[key]
	return ok
}

// UnreadableError is the error for the configuration of this host's daemon if this user may not read it.
type UnreadableError struct{ File string }

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("%s says how to connect, but this user may not read it: use sudo, name a file of your own "+
		"with --config, or the servers with --zk", e.File)
}

// hostFile returns the configuration file of this host's daemon; empty if there is none.
func (p Places) hostFile() (string, error) {
	file, err := os.Open(p.HostFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case errors.Is(err, fs.ErrPermission):
		return "", &UnreadableError{p.HostFile}
	case err != nil:
		return "", fmt.Errorf("%s: cannot be read: %w", p.HostFile, errors.Unwrap(err))
	}
	return p.HostFile, file.Close()
}

// saysHowToConnect reports whether a configuration file has settings of the connection. What is wrong with the file is
// reported when it is read for its other settings.
func saysHowToConnect(file string) bool {
	var errs Errors
	data := readFile(file, &errs)
	if data == nil {
		return false
	}
	settings, _ := parseFile(file, data, &errs)
	for key := range settings {
		if strings.HasPrefix(key, zookeeperSection) {
			return true
		}
	}
	return false
}

// zookeeperSection is the prefix of the settings of the connection.
const zookeeperSection = "zookeeper."

// serversKey is the setting with the servers.
const serversKey = zookeeperSection + "servers"

// credentialKeys are the settings with which a session authenticates and trusts its servers.
var credentialKeys = []string{
	"zookeeper.auth.file",
	"zookeeper.sasl.password_file", "zookeeper.sasl.keytab", "zookeeper.sasl.credential_cache",
	"zookeeper.sasl.server_principal", "zookeeper.sasl.krb5_conf",
	"zookeeper.tls.ca", "zookeeper.tls.cert", "zookeeper.tls.key", "zookeeper.tls.server_name",
}

// layers are the settings by where they were given: in the file, in the environment, by flags.
type layers struct {
	base, env, flags map[string]found
}

// readLayers reads environment and flags. base are the settings of the file.
func readLayers(src Sources, base map[string]found, errs *Errors) layers {
	l := layers{base: maps.Clone(base), env: make(map[string]found), flags: make(map[string]found)}
	if l.base == nil {
		l.base = make(map[string]found)
	}
	readEnv(src.Env, l.env, errs)
	readFlags(src.Flags, l.flags, errs)
	return l
}

// merged returns the settings in force.
func (l layers) merged() map[string]found {
	all := maps.Clone(l.base)
	maps.Copy(all, l.env)
	maps.Copy(all, l.flags)
	return all
}

// refuseStrangers reports credentials that would be presented to servers of another source: those that a source names
// together with servers go to these servers only, and a connection that is complete by itself takes none from the
// environment.
func (l layers) refuseStrangers(src Sources, errs *Errors) {
	all := l.merged()
	servers, own := all[serversKey], l.base[serversKey]
	complete := src.Complete && own.source != "" && servers.source == own.source
	for _, key := range credentialKeys {
		f := all[key]
		switch _, inEnv := l.env[key]; {
		case inEnv && complete:
			errs.add(f.source, key, "does not belong to zookeeper.servers (%s): unset it, or write the setting there",
				own.source)
		case !isSet(f):
		case inEnv && !within(servers, l.env[serversKey]):
			errs.add(f.source, key, "belongs to the servers in %s, but %s names others: leave out %[2]s, or unset "+
				"%[1]s if the credentials are for the other servers",
				l.env[serversKey].source, servers.source)
		case !inEnv && !within(servers, own):
			errs.add(f.source, key, "belongs to zookeeper.servers (%s), but %s names others: use only one of them, "+
				"or a file with these servers",
				own.source, servers.source)
		}
	}
}

// isSet reports whether a credential is given, and not empty.
func isSet(f found) bool { return f.value != nil && f.value != "" }

// within reports whether all servers are among those that a source names, or whether it names none.
func within(servers, named found) bool {
	all, _ := named.value.([]string)
	some, _ := servers.value.([]string)
	for _, one := range some {
		if named.value != nil && !slices.ContainsFunc(all, func(s string) bool { return withPort(s) == withPort(one) }) {
			return false
		}
	}
	return true
}

// withPort returns a server with its port.
func withPort(server string) string {
	if server != "" && !strings.Contains(server, ":") && !strings.HasPrefix(server, cluster.SRVPrefix) {
		return server + ":2181"
	}
	return server
}

// LoadCommand is [LoadHost] for a command: an error in the files of groups must not keep people from operating the
// others. Such groups are left out of Host, and ignored has their errors; it is nil if there are none.
func LoadCommand(src Sources) (h Host, ignored, err error) {
	m := readMain(src)
	if m.dir == "" || len(m.errs) > 0 {
		h, err = LoadHost(src)
		return h, nil, err
	}
	d := m.readGroups()
	errs := d.allErrors()
	if len(errs) > 0 {
		ignored = errs.sorted()
	}
	h = d.host(m)
	h.From = From{src.File, m.settings}
	return h, ignored, nil
}

// Error is one error in a configuration.
type Error struct {
	// Source is file:line, an environment variable or a flag.
	Source string
	// Key is the setting; empty if the error does not concern a single setting.
	Key    string
	Reason string
}

func (e Error) Error() string {
	parts := slices.DeleteFunc([]string{e.Source, e.Key, e.Reason}, func(part string) bool { return part == "" })
	return strings.Join(parts, ": ")
}

// Errors are all errors in a configuration. Its text has one line for each.
type Errors []Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

func (e *Errors) add(source, key, format string, args ...any) {
	*e = append(*e, Error{Source: source, Key: key, Reason: fmt.Sprintf(format, args...)})
}

// sorted sorts the errors in the order of the reference; those without a setting come first.
func (e Errors) sorted() Errors {
	keys := Keys()
	place := func(e Error) int {
		name := strings.TrimPrefix(e.Key, defaultsSection+".")
		return slices.IndexFunc(keys, func(k Key) bool { return k.Name == name })
	}
	slices.SortStableFunc(e, func(a, b Error) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), strings.Compare(a.Reason, b.Reason))
	})
	return e
}
