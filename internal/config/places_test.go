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
