package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// settingFlag is the flag of a setting.
type settingFlag struct{ flag, key, usage string }

// flags are the settings that have a flag.
var flags = []settingFlag{
	{"zk", "zookeeper.servers", "ZooKeeper servers, host:port, separated by commas"},
	{"root", "zookeeper.root", "the group's root znode"},
	{"session-timeout", "zookeeper.session_timeout", "ZooKeeper session timeout to request"},
	{"connect-timeout", "zookeeper.connect_timeout", "give up if no server answers for this long; with 0s a daemon " +
		"tries forever, a command for 10s"},
	{"id", "node.id", "the name of this daemon in the group"},
	{"site", "node.site", "the site of this host"},
	{"priority", "node.priority", "rank within the site, higher is better"},
	{"label", "node.labels", "labels, key=value, separated by commas"},
	{"http", "http.listen", "host:port or unix:/path for status, metrics and operator requests"},
	{"http-token-file", "http.token_file", "file with a line name:token for each client that may submit operator " +
		"requests over HTTP"},
	{"http-web-config", "http.web_config", "web configuration file (TLS, client certificates) of the HTTP API"},
	{"no-child", "child.none", "lead without leader-only work: programs ask the HTTP API who leads"},
	{"log-level", "log.level", "debug, info, warn or error"},
	{"log-format", "log.format", "text or json"},
}

// RegisterFlags adds --config and the flags for settings.
func RegisterFlags(to *pflag.FlagSet) { register(to, "") }

// RegisterConnection adds --config and the flags for the connection to the group, for commands that need nothing else.
func RegisterConnection(to *pflag.FlagSet) { register(to, zookeeperSection) }

// RegisterNodeName adds the flags for the name and the site of this host.
func RegisterNodeName(to *pflag.FlagSet) { registerSettings(to, "node.id", "node.site") }

// setting is the annotation of a flag that sets a key. A command may have another flag with the name of one of them.
const setting = "setting"

// RegisterFile adds --config.
func RegisterFile(to *pflag.FlagSet) {
	to.Var(new(fileFlag), "config", "configuration file (YAML), optional")
}

// fileFlag is the name of a file. A second one is refused: it would silently replace the first.
type fileFlag string

func (f *fileFlag) String() string { return string(*f) }

func (f *fileFlag) Type() string { return "string" }

func (f *fileFlag) Set(name string) error {
	if *f != "" && string(*f) != name { // for a completion, cobra parses the flags twice
		return errors.New("set twice: only one configuration file is read")
	}
	*f = fileFlag(name)
	return nil
}

func register(to *pflag.FlagSet, prefix string) {
	RegisterFile(to)
	registerSettings(to, prefix)
}

// registerSettings adds the flags for settings whose names begin with one of the prefixes.
func registerSettings(to *pflag.FlagSet, prefixes ...string) {
	for _, f := range flags {
		if slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(f.key, prefix) }) {
			addFlag(to, f)
		}
	}
}

func addFlag(to *pflag.FlagSet, f settingFlag) {
	key := keysByName()[f.key]
	usage := f.usage
	if value := shown(key.Default); key.Kind == boolean {
		to.Bool(f.flag, false, usage)
	} else {
		if value != "" {
			usage += fmt.Sprintf(" (default %s)", value)
		}
		to.String(f.flag, "", usage)
	}
	to.Lookup(f.flag).Annotations = map[string][]string{setting: {f.key}}
}

func readFlags(to *pflag.FlagSet, values map[string]found, errs *Errors) {
	if to == nil {
		return
	}
	keys := keysByName()
	for _, f := range flags {
		if flag := to.Lookup(f.flag); flag != nil && flag.Changed && flag.Annotations[setting] != nil {
			put(values, keys[f.key], "--"+f.flag, flag.Value.String(), errs)
		}
	}
}
