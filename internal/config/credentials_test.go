package config

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

const (
	envAuth  = "ZKELECTD_ZOOKEEPER_AUTH_FILE=/env.auth"
	envTLS   = "ZKELECTD_ZOOKEEPER_TLS_CA=/ca"
	envRoot  = "ZKELECTD_ZOOKEEPER_ROOT=/env"
	envOther = "ZKELECTD_ZOOKEEPER_SERVERS=other"
	envNamed = "ZKELECTD_CONFIG=@file"
	refused  = "refused: "
)

// connection is a case of [TestCredentialsGoToTheirOwnServersOnly].
type connection struct {
	env, args []string
	// want are the servers, the auth file, whether there is TLS, and the root; or the beginning of the refusal.
	want string
}

var connections = map[string][]connection{"a command": {
	{nil, nil, "host:2181 /host.auth true /host"},
	{[]string{envAuth}, nil, "host:2181 /env.auth true /host"},
	{[]string{envAuth, envOther}, nil, "other:2181 /env.auth false /cluster"},
	{[]string{envAuth}, []string{"--zk", "other"}, "other:2181 /env.auth false /cluster"},
	{nil, []string{"--zk", "other"}, "other:2181  false /cluster"},
	{[]string{envAuth, envOther}, []string{"--zk", "third"}, refused + "ZKELECTD_ZOOKEEPER_AUTH_FILE: zookeeper.auth.file: belongs to the servers in ZKELECTD_ZOOKEEPER_SERVERS, but --zk names others: leave out --zk, or unset ZKELECTD_ZOOKEEPER_SERVERS"},
	{[]string{envAuth, envOther}, []string{"--zk", "other:2181"}, "other:2181 /env.auth false /cluster"},

	{nil, []string{"--config", "@file"}, "file:2181 /file.auth false /file"},
	{nil, []string{"--config", "@file", "--zk", "other"}, refused + "@file:1: zookeeper.auth.file: belongs to zookeeper.servers (@file:1), but --zk names others: use only one of them"},
	{[]string{envOther}, []string{"--config", "@file"}, refused + "@file:1: zookeeper.auth.file: belongs to zookeeper.servers (@file:1), but ZKELECTD_ZOOKEEPER_SERVERS names others"},
	{[]string{envAuth}, []string{"--config", "@file"}, refused + "ZKELECTD_ZOOKEEPER_AUTH_FILE: zookeeper.auth.file: does not belong to zookeeper.servers (@file:1): unset it"},
	{[]string{envAuth, envOther}, []string{"--config", "@file"}, "other:2181 /env.auth false /file"},
	{[]string{envAuth}, []string{"--config", "@host"}, "host:2181 /env.auth true /host"},
	{[]string{envNamed, envAuth}, nil, "file:2181 /env.auth false /file"},
	{[]string{envNamed}, []string{"--zk", "other"}, refused + "@file:1: zookeeper.auth.file: belongs to zookeeper.servers (@file:1), but --zk names others"},
	{nil, []string{"--config", "@auth", "--zk", "other"}, "other:2181 /only.auth false /cluster"},
}, "the daemon": {
	{[]string{envAuth, envOther, envTLS, envRoot}, nil, "other:2181 /env.auth true /env"},
	{[]string{envAuth}, []string{"--config", "@file"}, "file:2181 /env.auth false /file"},
	{nil, []string{"--config", "@file", "--zk", "other"}, refused + "@file:1: zookeeper.auth.file: belongs to zookeeper.servers (@file:1), but --zk names others"},
	{[]string{envOther}, []string{"--config", "@file"}, refused + "@file:1: zookeeper.auth.file: belongs "},
	{[]string{envOther, envAuth}, []string{"--config", "@file"}, "other:2181 /env.auth false /file"},
	{[]string{envOther}, []string{"--config", "@auth"}, "other:2181 /only.auth false /cluster"},
}}

// The credentials of one source never go to servers of another: every combination either arrives as expected or is refused.
func TestCredentialsGoToTheirOwnServersOnly(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{
		"file.yaml": "zookeeper: {servers: [file], root: /file, auth: {file: /file.auth}}\n",
		"host.yaml": "zookeeper: {servers: [host], root: /host, auth: {file: /host.auth}, tls: {ca: /ca}}\n",
		"auth.yaml": "zookeeper: {auth: {file: /only.auth}}\n",
	} {
		if err := os.MkdirAll(filepath.Dir(file(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, file(name), text)
	}
	paths := strings.NewReplacer("@file", file("file.yaml"), "@host", file("host.yaml"), "@auth", file("auth.yaml"))
	for who, list := range connections {
		for _, c := range list {
			src := Sources{Flags: new(pflag.FlagSet)}
			RegisterConnection(src.Flags)
			getenv := make(map[string]string)
			for _, one := range c.env {
				name, value, _ := strings.Cut(paths.Replace(one), "=")
				getenv[name] = value
				src.Env = append(src.Env, name+"="+value)
			}
			if err := src.Flags.Parse(strings.Fields(paths.Replace(strings.Join(c.args, " ")))); err != nil {
				t.Fatal(err)
			}
			src.File = src.Flags.Lookup("config").Value.String()
			if who == "a command" {
				p := Places{HostFile: file("host.yaml"), Getenv: func(name string) string { return getenv[name] }}
				p.Explicit = src.File
				var err error
				if src, err = p.Find(src); err != nil {
					t.Fatal(err)
				}
			}
			if got, want := arrives(src), paths.Replace(c.want); got != want && !(strings.HasPrefix(want, refused) && strings.HasPrefix(got, want)) {
				t.Errorf("%s with %v %v: %s\nwant %s", who, c.env, c.args, got, want)
			}
		}
	}
}

// arrives returns the connection that sources make.
func arrives(src Sources) string {
	h, _, err := LoadCommand(src)
	if err != nil {
		return refused + err.Error()
	}
	z := h.Config.ZooKeeper
	return strings.Join([]string{strings.Join(z.Servers, ","), z.Auth.File, strconv.FormatBool(z.TLS.Enabled()), z.Root}, " ")
}
