package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"

	"zkelectd/internal/cluster"
	"zkelectd/internal/sys/suggest"
)

// Sources are the sources of settings. Later ones override earlier ones: defaults, File, Env, Flags, Command.
type Sources struct {
	// File is the path of a YAML file; empty for none.
	File string
	// Complete is set if File is for a command that connects, and was named for it: Env adds no credentials to its servers.
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
	return fmt.Errorf("the configuration was read from a pipe (%s), which can be read only once: restart zkelectd to change it, or use a file", s.File)
}

// settingFlag is the flag of a setting.
type settingFlag struct{ flag, key, usage string }

// flags are the settings that have a flag.
var flags = []settingFlag{
	{"zk", "zookeeper.servers", "ZooKeeper servers, host:port, separated by commas"},
	{"root", "zookeeper.root", "the group's root znode"},
	{"session-timeout", "zookeeper.session_timeout", "ZooKeeper session timeout to request"},
	{"connect-timeout", "zookeeper.connect_timeout", "give up if no server answers for this long; with 0s a daemon tries forever, a command for 10s"},
	{"id", "node.id", "the name of this daemon in the group"},
	{"site", "node.site", "the site of this host"},
	{"priority", "node.priority", "rank within the site, higher is better"},
	{"label", "node.labels", "labels, key=value, separated by commas"},
	{"http", "http.listen", "host:port or unix:/path for status, metrics and operator requests"},
	{"http-token-file", "http.token_file", "file with a line name:token for each client that may submit operator requests over HTTP"},
	{"http-web-config", "http.web_config", "web configuration file (TLS, client certificates) of the HTTP API"},
	{"no-child", "child.none", "lead without leader-only work: programs ask the HTTP API who leads"},
	{"log-level", "log.level", "debug, info, warn or error"},
	{"log-format", "log.format", "text or json"},
}

// RegisterFlags adds --config and the flags for settings.
func RegisterFlags(fs *pflag.FlagSet) { register(fs, "") }

// RegisterConnection adds --config and the flags for the connection to the group, for commands that need nothing else.
func RegisterConnection(fs *pflag.FlagSet) {
	register(fs, zookeeperSection)
}

// RegisterNodeName adds the flags for the name and the site of this host.
func RegisterNodeName(fs *pflag.FlagSet) {
	for _, f := range flags {
		if f.key == "node.id" || f.key == "node.site" {
			addFlag(fs, f)
		}
	}
}

// setting is the annotation of a flag that sets a key. A command may have another flag with the name of one of them.
const setting = "setting"

// RegisterFile adds --config.
func RegisterFile(fs *pflag.FlagSet) {
	fs.Var(&onceValue{}, "config", "configuration file (YAML), optional")
}

func register(fs *pflag.FlagSet, prefix string) {
	RegisterFile(fs)
	for _, f := range flags {
		if strings.HasPrefix(f.key, prefix) {
			addFlag(fs, f)
		}
	}
}

func addFlag(fs *pflag.FlagSet, f settingFlag) {
	key := keyByName()[f.key]
	usage := f.usage
	if value := shown(key.Default); key.Kind == boolean {
		fs.Bool(f.flag, false, usage)
	} else {
		if value != "" {
			usage += fmt.Sprintf(" (default %s)", value)
		}
		fs.String(f.flag, "", usage)
	}
	fs.Lookup(f.flag).Annotations = map[string][]string{setting: {f.key}}
}

// onceValue is a string flag that cannot be set twice; otherwise the second file would silently replace the first.
type onceValue struct {
	value string
	set   bool
}

func (v *onceValue) String() string { return v.value }
func (v *onceValue) Type() string   { return "string" }
func (v *onceValue) Set(s string) error {
	if v.set && v.value != s { // for a completion, cobra parses the flags twice
		return errors.New("set twice: only one configuration file is read")
	}
	v.value, v.set = s, true
	return nil
}

// Load reads, merges and checks the sources of one group. If it fails, the error is [Errors] and Config is zero.
func Load(src Sources) (Config, error) {
	m := readMain(src)
	if m.dir != "" {
		m.errs.add(m.settings[groupsDir].source, groupsDir, "names several groups, but a configuration of one group is needed here")
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
	"ZKELECTD_NODE", "ZKELECTD_SITE", "ZKELECTD_GROUP", "ZKELECTD_TERM", "ZKELECTD_ROOT", "ZKELECTD_SLOT", "ZKELECTD_SLOTS", "ZKELECTD_EPOCH",
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
			hint := ""
			if near := suggest.Nearest(name, names); near != "" {
				hint = fmt.Sprintf("; did you mean %s?", near)
			}
			errs.add(name, "", "is not a setting%s", hint)
			continue
		}
		put(values, key, name, s, errs)
	}
}

func readFlags(fs *pflag.FlagSet, values map[string]found, errs *Errors) {
	if fs == nil {
		return
	}
	keys := keyByName()
	for _, f := range flags {
		if flag := fs.Lookup(f.flag); flag != nil && flag.Changed && flag.Annotations[setting] != nil {
			put(values, keys[f.key], "--"+f.flag, flag.Value.String(), errs)
		}
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
		if d, ok := out[key].(cluster.Duration); ok {
			out[key] = time.Duration(d)
		}
	}
	return out
}

// ApplyReload returns the configuration in force after a reload of a running daemon: next for the keys that a reload applies,
// and current for all others, which need a restart.
func ApplyReload(current, next Config) Config {
	to, from := current.fields(), next.fields()
	for _, k := range Keys() {
		if k.Reload {
			to[k.Name].Set(from[k.Name])
		}
	}
	return current
}

// Diff returns the keys in which two configurations differ: those that a reload applies, and those that need a restart.
func Diff(a, b Config) (reload, restart []string) {
	before, after := a.settings(), b.settings()
	for _, k := range Keys() {
		x, y := before[k.Name], after[k.Name]
		if reflect.DeepEqual(x, y) || (empty(x) && empty(y)) {
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

func empty(v any) bool {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Map, reflect.Slice:
		return r.Len() == 0
	}
	return false
}

// YAML returns the whole configuration as YAML, which loads as the same configuration. Values that depend on others have a comment
// with what is in force: the stop timeout if the servers grant the session timeout that is asked for.
func (c Config) YAML() string {
	comments := make(map[string]string)
	session := c.ZooKeeper.LeaseBase(c.ZooKeeper.SessionTimeout)
	if stop := c.StopTimeout(session); stop > 0 && c.Child.StopTimeout == 0 {
		comments["child.stop_timeout"] = fmt.Sprintf("%s with a session timeout of %s", stop, session)
	}
	if c.Slots.Enabled() && c.Slots.PerNode == 0 {
		comments["slots.per_node"] = fmt.Sprintf("%d, as many as slots.count", c.Slots.Limit())
	}
	return yamlOf(c.settings(), comments, func(string) bool { return true })
}

// YAML returns the settings of the host as YAML; for a daemon with one group, all of them.
func (h Host) YAML() string {
	if h.Dir == "" {
		return h.Config.YAML()
	}
	keys := keyByName()
	return yamlOf(h.Config.settings(), nil, func(key string) bool { return keys[key].Scope != GroupScope })
}

func yamlOf(settings map[string]any, comments map[string]string, wanted func(key string) bool) string {
	root := &yaml.Node{Kind: yaml.MappingNode}
	sections := map[string]*yaml.Node{"": root}
	for _, k := range Keys() {
		if !wanted(k.Name) {
			continue
		}
		path, name := "", k.Name
		if i := strings.LastIndexByte(k.Name, '.'); i >= 0 {
			path, name = k.Name[:i], k.Name[i+1:]
		}
		value, err := marshal(settings[k.Name])
		if err != nil {
			continue // cannot happen: all settings are plain values
		}
		value.LineComment = comments[k.Name]
		s := section(sections, path)
		s.Content = append(s.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, value)
	}
	var b strings.Builder
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	e.Encode(root)
	e.Close()
	return b.String()
}

// inline returns a value as YAML on one line.
func inline(v any) string {
	n, err := marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	text, err := yaml.Marshal(n)
	if err != nil {
		return fmt.Sprint(v)
	}
	return strings.Join(strings.Fields(string(text)), " ")
}

func section(sections map[string]*yaml.Node, path string) *yaml.Node {
	if s, ok := sections[path]; ok {
		return s
	}
	parent, name := "", path
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		parent, name = path[:i], path[i+1:]
	}
	s := &yaml.Node{Kind: yaml.MappingNode}
	p := section(sections, parent)
	p.Content = append(p.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, s)
	sections[path] = s
	return s
}

// shown returns a default as the reference and --help show it.
func shown(v any) string {
	switch v := v.(type) {
	case []string:
		return strings.Join(v, ",")
	case string:
		return v
	}
	if empty(v) {
		return ""
	}
	return fmt.Sprint(v)
}
