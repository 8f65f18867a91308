package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writeContexts writes a file with contexts that only this user can change, and returns its path.
func writeContexts(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestContextFile(t *testing.T) {
	for _, c := range []struct{ xdg, home, want string }{
		{"", "/home/ann", "/home/ann/.config/zkelectd/config.yaml"},
		{"/x", "/home/ann", "/x/zkelectd/config.yaml"},
		{"relative", "/home/ann", "/home/ann/.config/zkelectd/config.yaml"},
		{"", "", ""},
		{"", "relative", ""},
	} {
		got := ContextFile(func(name string) string { return map[string]string{"XDG_CONFIG_HOME": c.xdg, "HOME": c.home}[name] })
		if got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestContexts(t *testing.T) {
	file := writeContexts(t, `
# mine
current: prod
contexts:
  prod:
    servers: ["zk1:2281", zk2]
    root: /fleet
    auth: {file: ~/prod.auth}
    acl: private
    tls: {enabled: true, ca: /ca.pem, server_name: zk}
    session_timeout: 20s
  a.test-1: {servers: [127.0.0.1:2181]}
`)
	all, err := ReadContexts(file, "/home/ann")
	if err != nil || all.Current != "prod" || strings.Join(all.Names(), " ") != "a.test-1 prod" {
		t.Fatalf("%v: %+v", err, all)
	}
	c, err := all.Get("prod")
	if err != nil {
		t.Fatal(err)
	}
	h, _, err := LoadCommand(Sources{Context: c})
	if err != nil {
		t.Fatal(err)
	}
	z := h.Config.ZooKeeper
	if z.Servers[1] != "zk2:2181" || z.Root != "/fleet" || z.Auth.File != "/home/ann/prod.auth" || z.ACL != "private" || !z.TLS.Enabled || z.TLS.CA != "/ca.pem" || z.TLS.ServerName != "zk" {
		t.Errorf("%+v", z)
	}
	if from := h.From.Source("zookeeper.root"); from != "context prod ("+file+":7)" {
		t.Errorf("source %q", from)
	}
	if _, err := all.Get("prd"); err == nil || err.Error() != `no context is named "prd": `+file+" has a.test-1, prod" {
		t.Errorf("%v", err)
	}
	none, err := ReadContexts(filepath.Join(t.TempDir(), "none.yaml"), "")
	if err != nil || len(none.All()) != 0 {
		t.Errorf("without a file: %v, %+v", err, none)
	}
	if _, err := none.Get("x"); err == nil || !strings.HasSuffix(err.Error(), "none.yaml has none") {
		t.Errorf("%v", err)
	}
}

// All errors are reported at once, each with file, line and key.
func TestFaultsOfContexts(t *testing.T) {
	file := writeContexts(t, `curent: a
current: []
contexts:
  a: {servres: [zk1], root: /x}
  b: {root: /x}
  c: {servers: [zk1], root: x, password: secret}
  d: {servers: [zk1], root: x, acl: private}
  e: {servers: [zk1], session_file: /run/x, auth: {file: e.auth}}
  f: {servers: [zk1], auth: {file: prod}, tls: {ca: ~ann/x}}
  f: {}
  "g h": {servers: [zk1]}
  i: {servers: [zk1], servers: [zk2]}
  j: 7
`)
	_, err := ReadContexts(file, "/home/ann")
	var errs Errors
	if !errors.As(err, &errs) {
		t.Fatal(err)
	}
	for _, want := range []string{
		":1: curent: is not a setting: there are current and contexts",
		":2: current: must be the name of a context",
		":4: contexts.a.servres: is not a setting; did you mean contexts.a.servers?",
		":5: contexts.b.servers: is missing: name at least one host:port",
		":6: contexts.c.password: is not a setting",
		`:7: contexts.d.root: "x" must begin with /`,
		`:7: contexts.d.acl: "private" needs zookeeper.auth.file`,
		":8: contexts.e.session_file: is a setting of a daemon, not of a command",
		`:8: contexts.e.auth.file: "e.auth" must begin with / or ~/`,
		`:9: contexts.f.auth.file: "prod" must begin with / or ~/`,
		`:9: contexts.f.tls.ca: "~ann/x" must begin with / or ~/`,
		":10: contexts.f: is given twice",
		`:11: contexts: "g h" cannot be the name of a context`,
		":12: contexts.i.servers: is given twice",
		":13: contexts.j: must be a section of keys",
	} {
		if !strings.Contains("\n"+err.Error(), "\n"+file+want) {
			t.Errorf("%s is not among\n%v", want, err)
		}
	}
	for text, want := range map[string]string{
		"contexts: [": "is not YAML", "a: b\n---\nc: d\n": "more than one YAML document", "[]": "must be a section of keys",
	} {
		if _, err := ReadContexts(writeContexts(t, text), ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"", "# nothing\n", "contexts:\n"} {
		if all, err := ReadContexts(writeContexts(t, text), ""); err != nil || len(all.All()) != 0 {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A person who can change the file can have commands send credentials elsewhere.
func TestContextsThatOthersCanChangeAreRefused(t *testing.T) {
	file := writeContexts(t, "contexts: {a: {servers: [zk1]}}\n")
	for _, c := range []struct {
		path string
		mode os.FileMode
		want string
	}{
		{file, 0o606, "can be changed by others: the file has mode 0606"},
		{filepath.Dir(file), 0o707, "can be changed by others: its directory"},
	} {
		before, err := os.Stat(c.path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(c.path, c.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadContexts(file, ""); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v", c, err)
		}
		if err := os.Chmod(c.path, before.Mode()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ReadContexts(filepath.Dir(file), ""); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("a directory: %v", err)
	}
}

func TestUseContext(t *testing.T) {
	const rest = "contexts:\n  a: {servers: [zk1]} # one\n\n  b: {servers: [zk2]}\n"
	for text, want := range map[string]string{
		"# mine\ncurrent: a # now\n\n" + rest: "# mine\ncurrent: b # now\n\n" + rest,
		"current: \"a\"\n" + rest:             "current: b\n" + rest,
		"current: 'gone'\n" + rest:            "current: b\n" + rest,
		"# mine\n" + rest:                     "# mine\ncurrent: b\n" + rest,
		rest + "current: a":                   rest + "current: b",
		"current: b\n" + rest:                 "current: b\n" + rest,
	} {
		file := writeContexts(t, text)
		link := filepath.Join(t.TempDir(), "link.yaml")
		if err := os.Symlink(file, link); err != nil {
			t.Fatal(err)
		}
		all, err := ReadContexts(link, "")
		if err == nil {
			err = all.Use("b")
		}
		got, readErr := os.ReadFile(file)
		if err != nil || readErr != nil || string(got) != want {
			t.Errorf("%q: %v, %v, %q", text, err, readErr, got)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, mode %v", err, info.Mode())
		}
		if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
			t.Errorf("the link is replaced: %v", err)
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".zkelectd-*")); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		if again, err := ReadContexts(file, ""); err != nil || again.Current != "b" {
			t.Errorf("%q: %v, current %q", text, err, again.Current)
		}
	}
	for _, text := range []string{"{contexts: {b: {servers: [zk2]}}}", "current: \"\\x61\"\n" + rest} {
		file := writeContexts(t, text)
		all, err := ReadContexts(file, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := all.Use("b"); err == nil || !strings.Contains(err.Error(), "write 'current: b' there") {
			t.Errorf("%q: %v", text, err)
		}
		if err := all.Use("c"); err == nil || !strings.Contains(err.Error(), `no context is named "c"`) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
