package config

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// Each line adds a place that comes before those of the lines above.
func TestOrderOfPlaces(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, file, text)
		return file
	}
	env := map[string]string{"HOME": dir}
	p := Places{HostFile: filepath.Join(dir, "none.yaml"), Getenv: func(name string) string { return env[name] }}
	var fs *pflag.FlagSet
	load := func(step string) (Host, error) {
		t.Helper()
		src := Sources{Flags: fs}
		for name, value := range env {
			src.Env = append(src.Env, name+"="+value)
		}
		src, err := p.Find(src)
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		h, _, err := LoadCommand(src)
		return h, err
	}
	check := func(step, servers, root string) {
		t.Helper()
		h, err := load(step)
		if z := h.Config.ZooKeeper; err != nil || strings.Join(z.Servers, ",") != servers || z.Root != root {
			t.Errorf("%s: %v, %v, root %s", step, err, z.Servers, z.Root)
		}
	}
	check("defaults", "127.0.0.1:2181", "/cluster")
	p.HostFile = write("etc.yaml", "zookeeper: {servers: [etc:1], root: /etc}\n")
	check("the host's file", "etc:1", "/etc")
	env["ZKELECTD_ZOOKEEPER_ROOT"] = "/env"
	check("one setting in the environment", "etc:1", "/env")
	env["ZKELECTD_ZOOKEEPER_SERVERS"] = "env:1"
	delete(env, "ZKELECTD_ZOOKEEPER_ROOT")
	check("servers in the environment: the file's root is not theirs", "env:1", "/cluster")
	delete(env, "ZKELECTD_ZOOKEEPER_SERVERS")
	env[EnvConfig] = write("named.yaml", "zookeeper: {servers: [named:1], root: /named}\n")
	check("a file in the environment", "named:1", "/named")
	p.Argument = write("policy.yaml", "policy: {type: first}\n")
	check("a policy without a connection", "named:1", "/named")
	p.Argument = write("argument.yaml", "policy: {type: first}\nzookeeper: {servers: [argument:1]}\n")
	check("a policy with a connection", "argument:1", "/cluster")
	fs = new(pflag.FlagSet)
	RegisterConnection(fs)
	if err := fs.Set("zk", "flag:1"); err != nil {
		t.Fatal(err)
	}
	p.Explicit = p.HostFile
	check("a file by flag", "flag:1", "/etc")
}

func TestPlacesThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "broken.yaml")
	write(t, file, "zookeeper: [")
	p := Places{HostFile: file, Getenv: func(string) string { return "" }}
	// Flags that say everything make a broken file irrelevant.
	if src, err := p.Find(Sources{Env: []string{"ZKELECTD_ZOOKEEPER_SERVERS=zk1"}}); err != nil || src.File != "" {
		t.Errorf("%v, %+v", err, src)
	}
	var unreadable *UnreadableError
	if _, err := (Places{HostFile: filepath.Join(file, "below"), HostOnly: true, Getenv: p.Getenv}).Find(Sources{}); err == nil || errors.As(err, &unreadable) {
		t.Errorf("below a file: %v", err)
	}
}

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

// The credentials of one source never go to servers of another: every combination either arrives as expected or is
// refused.
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
