package config

import (
	"errors"
	"os"
	"path/filepath"
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
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
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
	refused := func(step, want string) {
		t.Helper()
		if _, err := load(step); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", step, err)
		}
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
	contexts := ".config/zkelectd/config.yaml"
	write(contexts, "contexts: {one: {servers: [one:1], root: /one}, two: {servers: [two:1]}}\n")
	check("contexts, none of them current", "etc:1", "/etc")
	write(contexts, "current: one\ncontexts: {one: {servers: [one:1], root: /one}, two: {servers: [two:1]}}\n")
	check("the current context", "one:1", "/one")
	p.HostOnly = true
	check("about this host", "etc:1", "/etc")
	p.HostOnly = false
	env["ZKELECTD_ZOOKEEPER_ROOT"] = "/env"
	check("one setting in the environment", "one:1", "/env")
	env["ZKELECTD_ZOOKEEPER_SERVERS"] = "env:1"
	delete(env, "ZKELECTD_ZOOKEEPER_ROOT")
	check("servers in the environment: the context's root is not theirs", "env:1", "/cluster")
	env[EnvContext] = "two"
	refused("a context in the environment, and other servers", "use only one of ZKELECTD_ZOOKEEPER_SERVERS and ZKELECTD_CONTEXT")
	delete(env, "ZKELECTD_ZOOKEEPER_SERVERS")
	check("a context in the environment", "two:1", "/cluster")
	env[EnvConfig] = write("named.yaml", "zookeeper: {servers: [named:1], root: /named}\n")
	check("a file in the environment", "named:1", "/named")
	p.Argument = write("policy.yaml", "policy: {type: first}\n")
	check("a policy without a connection", "named:1", "/named")
	p.Argument = write("argument.yaml", "policy: {type: first}\nzookeeper: {servers: [argument:1]}\n")
	check("a policy with a connection", "argument:1", "/cluster")
	p.ExplicitContext = "one"
	check("a context by flag", "one:1", "/one")
	env["ZKELECTD_ZOOKEEPER_SERVERS"] = "env:1"
	check("a context by flag comes before the environment", "one:1", "/one")
	fs = new(pflag.FlagSet)
	RegisterConnection(fs)
	if err := fs.Set("zk", "flag:1"); err != nil {
		t.Fatal(err)
	}
	refused("a context by flag, and other servers", "use only one of --zk and --context")
	p.Explicit = p.HostFile
	if _, err := p.Find(Sources{}); err == nil || !strings.Contains(err.Error(), "--config and --context exclude each other") {
		t.Errorf("both: %v", err)
	}
	p.ExplicitContext = ""
	check("a file by flag", "flag:1", "/etc")
}

func TestPlacesThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	env := map[string]string{"XDG_CONFIG_HOME": dir}
	p := Places{HostFile: filepath.Join(dir, "none.yaml"), Getenv: func(name string) string { return env[name] }}
	fails := func(want string) {
		t.Helper()
		if _, err := p.Find(Sources{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	env[EnvContext] = "x"
	fails(`ZKELECTD_CONTEXT: no context is named "x"`)
	delete(env, EnvContext)
	file := filepath.Join(dir, "zkelectd", "config.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("current: x\ncontexts: {y: {servers: [zk1]}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	fails(file + `:1: current: no context is named "x": ` + file + " has y; 'zkelectd context list' shows those that exist")
	if err := os.WriteFile(file, []byte("current: y\ncontexts: {y: {servres: [zk1]}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	fails("contexts.y.servres: is not a setting")
	// Flags that say everything make broken files irrelevant.
	if src, err := p.Find(Sources{Env: []string{"ZKELECTD_ZOOKEEPER_SERVERS=zk1"}}); err != nil || src.Context != nil || src.File != "" {
		t.Errorf("%v, %+v", err, src)
	}
	var unreadable *UnreadableError
	if _, err := (Places{HostFile: filepath.Join(file, "below"), HostOnly: true, Getenv: p.Getenv}).Find(Sources{}); err == nil || errors.As(err, &unreadable) {
		t.Errorf("below a file: %v", err)
	}
}
