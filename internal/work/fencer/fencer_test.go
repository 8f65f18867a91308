package fencer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/work/command"
)

// agent writes an executable script and returns its path.
func agent(t *testing.T, name, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	syscall.ForkLock.RLock() // a process that is forked meanwhile would keep the program open for writing: it could not be executed
	err := os.WriteFile(path, []byte("#!/bin/sh\n"+body), 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// xmlText is what an agent with these actions says about itself.
func xmlText(actions ...string) string {
	text := `<?xml version="1.0" ?><resource-agent name="fence_test"><parameters>
<parameter name="action" unique="0" required="1"><content type="string" default="off"/></parameter>
<parameter name="ip" unique="0" required="1" obsoletes="ipaddr"><content type="string"/></parameter>
<parameter name="ipaddr" unique="0" required="1" deprecated="1"><content type="string"/></parameter>
<parameter name="password" unique="0" required="0"><content type="string"/></parameter>
<parameter name="lanplus" unique="0" required="0"><content type="boolean"/></parameter>
<parameter name="privlvl" unique="0" required="0"><content type="select"><option value="user"/><option value="operator"/></content></parameter>
<parameter name="power_wait" unique="0" required="1"><content type="second" default="0"/></parameter>
</parameters><actions>`
	for _, a := range actions {
		text += `<action name="` + a + `"/>`
	}
	return text + `</actions></resource-agent>`
}

// all are the actions of an ordinary agent.
var all = []string{"on", "off", "reboot", "status", "monitor", "metadata"}

// script returns an agent that reads its options into the file log and then does as cases say for its action.
func script(t *testing.T, cases string, actions ...string) (path, log string) {
	t.Helper()
	log = filepath.Join(t.TempDir(), "log")
	return agent(t, "fence_test", fmt.Sprintf(`
options=$(cat)
echo "$options" | tr '\n' ' ' >> %[1]s
echo >> %[1]s
action=$(echo "$options" | sed -n 's/^action=//p')
case $action in
metadata) cat <<'END'
%[2]s
END
exit 0;;
esac
case $action in
%[3]s
esac
exit 0
`, log, xmlText(actions...), cases)), log
}

func level(path string) Config {
	return Config{Timeout: 20 * time.Second, Levels: []Level{{
		Setting: "fencing", Agent: path, Options: map[string]string{"lanplus": "1"}, Nodes: map[string]map[string]string{"n1": {"ip": "192.0.2.1"}},
	}}}
}

var target = Target{Group: "app", Node: "n1", Host: "host1", Site: "dc1", Address: "host1:7070", Term: 7, By: "n2"}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Commands and agents get neither systemd's credentials nor the daemon's settings.
func TestWhatFencesGetsNoCredentials(t *testing.T) {
	t.Setenv("CREDENTIALS_DIRECTORY", "/run/credentials/zkelectd.service")
	t.Setenv("ZKELECTD_ZOOKEEPER_AUTH_FILE", "zookeeper")
	path, _ := script(t, "status) exit 2;;", all...)
	for _, l := range []Level{{Setting: "fencing", Command: []string{path}}, level(path).Levels[0]} {
		var got []string
		_, err := Config{Timeout: time.Minute, Levels: []Level{l}}.FenceNode(t.Context(), target, func(ctx context.Context, p command.Command) (Result, error) {
			got = append(got, p.Env...)
			return Run(ctx, p)
		})
		if text := strings.Join(got, " "); err != nil || !strings.Contains(text, "PATH=") || strings.Contains(text, "CREDENTIALS_DIRECTORY") || strings.Contains(text, "AUTH_FILE") {
			t.Errorf("%s: %v, got %s", l.Name(), err, text)
		}
	}
}

func TestACommandGetsTheNode(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	path := agent(t, "power-off", `cat > `+out+`; echo "$ZKELECTD_FENCE_NODE $ZKELECTD_FENCE_HOST $ZKELECTD_FENCE_SITE $ZKELECTD_FENCE_TERM $ZKELECTD_FENCE_ADDRESS $ZKELECTD_FENCE_GROUP $ZKELECTD_FENCE_BY $1" >> `+out)
	c := Config{Timeout: 10 * time.Second, Levels: []Level{{Setting: "fencing", Command: []string{path, "arg"}}}}
	by, err := c.FenceNode(t.Context(), target, Run)
	if err != nil || by != path {
		t.Fatalf("%s, %v", by, err)
	}
	input, env, _ := strings.Cut(read(t, out), "\n")
	var got Target
	if err := json.Unmarshal([]byte(input), &got); err != nil || got != target {
		t.Errorf("%s: %v", input, err)
	}
	if want := "n1 host1 dc1 7 host1:7070 app n2 arg\n"; env != want {
		t.Errorf("%q, want %q", env, want)
	}
}

// Only a program that ends by itself with status 0 has fenced the node.
func TestWhatProvesNothing(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"fails":           {"echo no route to it; exit 3", "exited with status 3: no route to it"},
		"hangs in a fork": {"sleep 1000 & wait", "not done within 1s"},
		"is killed":       {"kill -9 $$", "signal: killed"},
		"huge output":     {"yes x | head -c 5000000; exit 1", "exited with status 1: x x x"},
		"control bytes":   {`printf 'a\033[2Jb\000\377'; exit 1`, "exited with status 1: a [2Jb ?"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conf := Config{Timeout: 20 * time.Second, Levels: []Level{{Command: []string{agent(t, "command", c.body)}}}}
			if name == "hangs in a fork" {
				conf.Timeout = time.Second
			}
			_, err := conf.FenceNode(t.Context(), target, Run)
			if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 1000 || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v", err)
			}
		})
	}
	c := Config{Timeout: time.Second, Levels: []Level{{Command: []string{"/nonexistent/command"}}}}
	if _, err := c.FenceNode(t.Context(), target, Run); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("%v", err)
	}
	if _, err := (Config{}).FenceNode(t.Context(), target, Run); err == nil {
		t.Error("nothing has succeeded")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c = Config{Timeout: time.Second, Levels: []Level{{Command: []string{"true"}}, {Command: []string{"true"}}}}
	if _, err := c.FenceNode(ctx, target, Run); err == nil || err.Error() != "true: was cut short" {
		t.Errorf("%v", err)
	}
}

func TestLevelsAreTriedInOrder(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	first, second, third := agent(t, "first", "echo 1 >> "+log+"; exit 1"), agent(t, "second", "echo 2 >> "+log), agent(t, "third", "echo 3 >> "+log)
	c := Config{Timeout: 10 * time.Second, Levels: []Level{{Command: []string{first}}, {Command: []string{second}}, {Command: []string{third}}}}
	by, err := c.FenceNode(t.Context(), target, Run)
	if err != nil || by != second || read(t, log) != "1\n2\n" {
		t.Errorf("%s, %v, %q", by, err, read(t, log))
	}
	c.Levels = []Level{{Command: []string{first}}, {Command: []string{"false"}}}
	if _, err := c.FenceNode(t.Context(), target, Run); err == nil || err.Error() != first+": exited with status 1; false: exited with status 1" {
		t.Errorf("%v", err)
	}
	if c.Limit() != 2*(10*time.Second+killSlack) {
		t.Errorf("limit %s", c.Limit())
	}
}

func TestAnAgentGetsItsOptions(t *testing.T) {
	path, log := script(t, "status) exit 2;;", all...)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := level(path)
	c.Levels[0].Secrets = map[string]string{"password": secret}
	by, err := c.FenceNode(t.Context(), target, Run)
	if err != nil || by != "fence_test" {
		t.Fatalf("%s, %v", by, err)
	}
	want := "action=metadata \naction=off ip=192.0.2.1 lanplus=1 password=hunter2 \naction=status ip=192.0.2.1 lanplus=1 password=hunter2 \n"
	if got := read(t, log); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if err := os.Chmod(secret, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := c.FenceNode(t.Context(), target, Run); err == nil || !strings.Contains(err.Error(), "chmod 0600") {
		t.Errorf("a secret that others can read: %v", err)
	}
	if _, err := c.FenceNode(t.Context(), Target{Node: "n9"}, Run); err == nil || !strings.Contains(err.Error(), "fencing.nodes has no entry for the node n9") {
		t.Errorf("%v", err)
	}
}

// An agent may lie or not know: only a status that says off counts, where the agent has that action.
func TestAgentsThatLie(t *testing.T) {
	for name, c := range map[string]struct {
		cases   string
		actions []string
		want    string // in the error; empty for success
	}{
		"says on after off":    {"", all, "action=off succeeded, but action=status says that the node is still on"},
		"cannot tell":          {"status) echo timeout; exit 1;;", all, "cannot tell whether the node is off: exited with status 1: timeout"},
		"hangs in status":      {"status) sleep 1000;;", all, "not done within"},
		"has no status":        {"", []string{"off", "reboot"}, ""},
		"off":                  {"status) exit 2;;", all, ""},
		"prints its secrets":   {"off) echo $options; exit 1;;", all, "password=(not shown)"},
		"metadata are garbage": {"", nil, "still on"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, _ := script(t, c.cases, c.actions...)
			secret := filepath.Join(t.TempDir(), "secret")
			if err := os.WriteFile(secret, []byte("hunter2\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			conf := level(path)
			if strings.HasPrefix(name, "hangs") {
				conf.Timeout = 6 * time.Second
			}
			conf.Levels[0].Secrets = map[string]string{"password": secret}
			_, err := conf.FenceNode(t.Context(), target, Run)
			switch {
			case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v", err)
			case err != nil && strings.Contains(err.Error(), "hunter2"):
				t.Errorf("shows a secret: %v", err)
			}
		})
	}
}

// What a candidate's guard runs under its lease returns only the beginning of an output. Metadata are longer.
func TestAnAgentWithoutStatusAndWithLongMetadata(t *testing.T) {
	path, _ := script(t, "off) exit 0;; status) exit 1;;", "off", strings.Repeat("x", 1<<14))
	_, err := level(path).FenceNode(t.Context(), target, func(ctx context.Context, c command.Command) (Result, error) {
		r, err := Run(ctx, c)
		r.Output = r.Output[:min(len(r.Output), 4096)]
		return r, err
	})
	if err != nil {
		t.Error(err)
	}
}

// A status that is right only after a moment is waited for.
func TestAnAgentThatTakesAMoment(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "asked")
	path, _ := script(t, fmt.Sprintf("status) if [ -e %[1]s ]; then exit 2; fi; touch %[1]s; exit 0;;", marker), all...)
	if _, err := level(path).FenceNode(t.Context(), target, Run); err != nil {
		t.Error(err)
	}
}

func TestCheckValidatesOptions(t *testing.T) {
	path, log := script(t, "", all...)
	for name, c := range map[string]struct {
		change func(*Config)
		want   []string
	}{
		"right":            {func(*Config) {}, nil},
		"by its old name":  {func(c *Config) { c.Levels[0].Nodes["n1"] = map[string]string{"ipaddr": "192.0.2.1"} }, nil},
		"missing":          {func(c *Config) { c.Levels[0].Nodes["n1"] = nil }, []string{"n1: ip is required by the agent, and not set", "n1: ipaddr is required"}},
		"unknown":          {func(c *Config) { c.Levels[0].Options["lanplu"] = "1" }, []string{"n1: lanplu is not an option of the agent; did you mean lanplus?"}},
		"not a boolean":    {func(c *Config) { c.Levels[0].Options["lanplus"] = "maybe" }, []string{`lanplus: "maybe" is neither 1 nor 0`}},
		"not an integer":   {func(c *Config) { c.Levels[0].Options["power_wait"] = "long" }, []string{`power_wait: "long" is not an integer`}},
		"not one of those": {func(c *Config) { c.Levels[0].Options["privlvl"] = "root" }, []string{`privlvl: "root" is not one of user, operator`}},
		"not installed": {func(c *Config) { c.Levels[0].Agent = "fence_nonexistent" }, []string{
			"fencing.agent: fence_nonexistent: fencing.agent: fence_nonexistent is not installed"}},
		"no secret": {func(c *Config) { c.Levels[0].Secrets = map[string]string{"password": "/nonexistent"} }, []string{"fencing.secrets: /nonexistent cannot be read"}},
	} {
		conf := level(path)
		c.change(&conf)
		errs := conf.Check(t.Context(), true, Run)
		if len(errs) != len(c.want) {
			t.Errorf("%s: %v", name, errs)
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(errs[i].Error(), want) {
				t.Errorf("%s: %v, want %q", name, errs[i], want)
			}
		}
	}
	if strings.Contains(read(t, log), "action=off") {
		t.Error("a check has fenced a node")
	}
}

func TestCheckFindsAgentsThatLieAboutThemselves(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"garbage":          {"cat > /dev/null; echo hello", "does not print what a fence agent prints: hello"},
		"no parameters":    {"cat > /dev/null; echo '<resource-agent/>'", "lists no parameters or no actions"},
		"huge":             {"cat > /dev/null; echo '<resource-agent>'; yes '<parameter/>' | head -c 30000000", "does not print what a fence agent prints"},
		"fails":            {"cat > /dev/null; echo no python >&2; exit 127", "action=metadata failed: exited with status 127: no python"},
		"no off":           {"cat > /dev/null; cat <<'END'\n" + xmlText("on", "status") + "\nEND", "has no action off"},
		"only cuts it off": {"cat > /dev/null; cat <<'END'\n" + xmlText("on", "off", "status") + "\nEND", "fencing.skip_wait must be false"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conf := level(agent(t, "fence_test", c.body))
			conf.Timeout = 30 * time.Second
			errs := conf.Check(t.Context(), true, Run)
			if len(errs) != 1 || !strings.Contains(errs[0].Error(), c.want) {
				t.Errorf("%v", errs)
			}
		})
	}
}

func TestMonitor(t *testing.T) {
	for name, c := range map[string]struct {
		cases   string
		actions []string
		want    string
	}{
		"answers":                        {"", all, ""},
		"does not":                       {"monitor) echo unreachable; exit 1;;", all, "fence_test could not fence n1: action=monitor: exited with status 1: unreachable"},
		"only has status":                {"monitor) exit 1;; status) exit 2;;", []string{"off", "status"}, ""},
		"only has status, which fails":   {"status) exit 1;;", []string{"off", "status"}, "action=status: exited with status 1"},
		"lies about what it is asked":    {"", nil, "lists no parameters or no actions"},
		"hangs when it is asked":         {"monitor) sleep 1000;;", all, "not done within"},
		"is asked about an unknown node": {"monitor) exit 1;;", all, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, log := script(t, c.cases, c.actions...)
			conf := level(path)
			if strings.HasPrefix(name, "hangs") {
				conf.Timeout = 6 * time.Second
			}
			node := "n1"
			if name == "is asked about an unknown node" {
				node = "n9"
			}
			err := conf.Monitor(t.Context(), node, Run)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v", err)
			}
			if node == "n1" && strings.Contains(read(t, log), "action=off") {
				t.Error("the monitor has fenced a node")
			}
		})
	}
}

func TestNodesAndWhoCanFenceThem(t *testing.T) {
	c := Config{Levels: []Level{{Agent: "fence_a", Nodes: map[string]map[string]string{"n2": nil, "n1": nil}}}}
	if got := c.Nodes(); !slices.Equal(got, []string{"n1", "n2"}) {
		t.Errorf("%v", got)
	}
	if c.CanFence("n1") != nil || c.CanFence("n3") == nil {
		t.Error(c.CanFence("n1"), c.CanFence("n3"))
	}
	c.Levels = append(c.Levels, Level{Command: []string{"x"}})
	if err := c.CanFence("n3"); err != nil {
		t.Error(err)
	}
}

// Two groups that fence one node at the same time do it once; what fails for one is tried by the other.
func TestOnlyOneFencesANode(t *testing.T) {
	var e Exclusive
	began, release := make(chan struct{}), make(chan error)
	type outcome struct {
		by  string
		err error
	}
	outcomes := make(chan outcome, 2)
	start := func() {
		go func() {
			by, err := e.FenceNode(t.Context(), "n1", func(context.Context) (string, error) {
				began <- struct{}{}
				return "agent", <-release
			})
			outcomes <- outcome{by, err}
		}()
	}
	start()
	<-began
	if ran := e.Monitor(t.Context(), func(context.Context) { t.Error("monitored while a node is fenced") }); ran {
		t.Error("monitored")
	}
	start()
	release <- errors.New("failed")
	if o := <-outcomes; o.err == nil {
		t.Errorf("%+v", o)
	}
	<-began // the other one tries itself
	start()
	release <- nil
	for range 2 {
		select {
		case o := <-outcomes:
			if o.by != "agent" || o.err != nil {
				t.Errorf("%+v", o)
			}
		case <-began: // the third began after the second had ended
			release <- nil
			<-outcomes
		}
	}
}

// What fences a node ends all that only asks.
func TestFencingEndsTheMonitor(t *testing.T) {
	var e Exclusive
	asking, done := make(chan struct{}), make(chan bool)
	go func() {
		done <- e.Monitor(t.Context(), func(ctx context.Context) {
			close(asking)
			<-ctx.Done()
		})
	}()
	<-asking
	if _, err := e.FenceNode(t.Context(), "n1", func(context.Context) (string, error) { return "agent", nil }); err != nil {
		t.Error(err)
	}
	if <-done {
		t.Error("the result of a monitor that was cut short counts")
	}
	if !e.Monitor(t.Context(), func(context.Context) {}) {
		t.Error("no monitor after the fencing")
	}
}
