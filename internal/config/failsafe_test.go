package config

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// safe is a configuration for failsafe mode with the default session timeout.
const safe = `node: {id: n1}
zookeeper: {acl: private, auth: {file: /etc/zk.auth}}
child: {command: [app]}
failsafe: {enabled: true, listen: "192.0.2.1:7400"}
`

func loadText(t *testing.T, text string) (Host, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "zkelectd.yaml")
	write(t, path, text)
	r, err := ReloadHost(Sources{File: path}, Host{}, false)
	return r.Host, err
}

func TestFailsafe(t *testing.T) {
	h, err := loadText(t, safe)
	if err != nil {
		t.Fatal(err)
	}
	c := h.Config
	if f := c.Rules().Failsafe; !f.Enabled || f.Max != 0 || c.FailsafeAddress() != "192.0.2.1:7400" {
		t.Errorf("%+v", f)
	}
	if lines := RulesDiff(defaults().Rules(), c.Rules()); len(lines) != 1 || lines[0] != "failsafe.enabled: false -> true" {
		t.Errorf("%q", lines)
	}
	env := func(name string) string { return map[string]string{"STATE_DIRECTORY": "/var/lib/z:/x"}[name] }
	if got := StateDirectory(env) + StateDirectory(func(string) string { return "" }); got != "/var/lib/z/var/lib/zkelectd" {
		t.Error(got)
	}
	if h, err = loadText(t, strings.Replace(safe, ", listen", "}\nhttp: {listen", 1)); err != nil || h.Config.FailsafeAddress() != "192.0.2.1:7400" {
		t.Errorf("%+v, %v", h.Config.HTTP, err)
	}
}

func TestFailsafeRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, file, key, reason string }{
		"slots":              {safe + "slots: {count: 3}", "zkelectd.yaml:4", failsafeEnabled, "slots.count"},
		"a slow stop":        {strings.Replace(safe, "[app]", "[app], stop_timeout: 1s", 1), "zkelectd.yaml:3", "child.stop_timeout", "900ms"},
		"an open tree":       {strings.Replace(safe, "zookeeper: {acl: private, auth: {file: /etc/zk.auth}}\n", "", 1), "zkelectd.yaml", "zookeeper.acl", "is open"},
		"no address":         {strings.Replace(safe, `, listen: "192.0.2.1:7400"`, "", 1), "zkelectd.yaml", failsafeListen, "http.listen"},
		"a wildcard":         {strings.Replace(safe, "192.0.2.1", "0.0.0.0", 1), "zkelectd.yaml:4", failsafeListen, "192.0.2.1:7400"},
		"a wildcard, by API": {strings.Replace(safe, ", listen: \"192.0.2.1:7400\"", "}\nhttp: {listen: \"[::]:80\"", 1), "zkelectd.yaml", failsafeListen, "[::]:80"},
		"passwords, by API":  {strings.Replace(safe, ", listen: \"192.0.2.1:7400\"", "}\nhttp: {web_config: /etc/web, listen: \"192.0.2.1:80\"", 1), "zkelectd.yaml", failsafeListen, "web_config"},
		"no port":            {strings.Replace(safe, ":7400", "", 1), "zkelectd.yaml:4", failsafeListen, "host:port"},
		"a long limit":       {strings.Replace(safe, "true,", "true, max: 100000h,", 1), "zkelectd.yaml:4", failsafeMax, "more than"},
		"only a limit":       {strings.Replace(safe, "enabled: true,", "max: 1h,", 1), "zkelectd.yaml:4", failsafeMax, "failsafe.enabled"},
	} {
		_, err := loadText(t, c.text)
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		for _, want := range []string{c.file + ": " + c.key + ": ", c.reason} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q has no %q", name, err, want)
			}
		}
	}
}

// A command may read a file that has the policy alone.
func TestFailsafeInAPolicyAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, "failsafe: {enabled: true, max: 1h}\n")
	c, err := Load(Sources{File: path})
	if f := c.Rules().Failsafe; err != nil || !f.Enabled || time.Duration(f.Max) != time.Hour {
		t.Errorf("%+v, %v", f, err)
	}
	write(t, path, RulesYAML(c.Rules()))
	if again, err := Load(Sources{File: path}); err != nil || again.Rules().Digest() != c.Rules().Digest() {
		t.Errorf("%v", err)
	}
}

// Of many groups, only those that need something for failsafe mode are refused.
func TestFailsafeOfOneGroup(t *testing.T) {
	h := newHost(t, "", map[string]string{"plain": "child: {command: [a]}\n", "safe": "child: {command: [b]}\nfailsafe: {enabled: true}\n"})
	r := h.reload(Host{}, false)
	if got := summary(r); got != "added [plain] changed [] removed [] refused [safe]" || !strings.Contains(r.Refused["safe"].Error(), "safe.yaml: failsafe.listen") {
		t.Errorf("%s: %v", got, r.Refused)
	}
}
