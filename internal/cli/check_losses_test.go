package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"zkelectd/internal/config"
	"zkelectd/internal/operator/status"
)

// zkelectd check and the log at start name the losses that the configuration does not survive. A single member does not survive the loss of
// its host.
func TestCheckSaysWhatALossCosts(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	survived := func(want string) {
		t.Helper()
		out, err := f.runAs("a", "check", "-o", "json")
		var c checkedConfig
		_, after, _ := strings.Cut(out, "{") // warnings come before
		if jsonErr := json.NewDecoder(strings.NewReader("{" + after)).Decode(&c); err != nil || jsonErr != nil || len(c.Groups) != 1 {
			t.Fatalf("%v, %v: %s", err, jsonErr, out)
		}
		var kinds []string
		for _, l := range c.Groups[0].Losses {
			if l.Survived() {
				kinds = append(kinds, string(l.Kind))
			}
		}
		if got := strings.Join(kinds, " "); got != want {
			t.Errorf("survived: %s, want %s", got, want)
		}
	}
	f.configure("a", "dc1", 100, "")
	survived("daemon host partition") // nothing is known of a group without members
	f.start("a")
	f.until("a leads", leads("a"))
	survived("daemon")
	f.configure("b", "dc1", 50, "")
	f.start("b")
	f.until("b has joined", func(g status.Group) bool { return len(g.Members) == 2 })
	survived("daemon host partition")
	f.failsWith("must be table or json", "check", "-o", "yaml")
}

// The lease and the session timeout are shown apart from each other.
func TestCheckShowsTheLease(t *testing.T) {
	t.Parallel()
	for settings, want := range map[string][]string{
		"child: {command: [app]}": {
			"lease            2.7s  how long the work goes on while ZooKeeper does not answer; it is renewed every 450ms, and ends within a stop timeout of 2.25s\n",
			"session timeout  6s    how long ZooKeeper may be away before the member must register again\n",
			"\nFailback is manual: leadership stays where it is until the leader fails or is drained, or until somebody runs\n'zkelectd reelect -g g' or 'zkelectd move -g g'.\n", "its host is lost                            3.67s ",
		},
		"child: {none: true}\nelection: {lost_after: 5s}\npolicy: {type: spread}": {
			"\nFailback is 30s: a better member than a healthy leader, such as the preferred host when it comes back, takes over\nonce it has been eligible for 30s", "it is renewed every 900ms\n", "its host is lost                            5s "},
		"zookeeper: {session_timeout: 20s}\nelection: {lease: 900ms}\nchild: {command: [app]}\npolicy: {failback: 0s}": {
			"\nFailback is immediate: a better member than a healthy leader, such as the preferred host when it comes back, takes over\nat once: ",
			"lease            900ms  ", "renewed every 150ms, and ends within a stop timeout of 750ms\n", "session timeout  20s    ", "its host is lost                            1.22s ",
		},
	} {
		c, err := config.Load(config.Sources{File: "zkelectd.yaml", Content: []byte(settings)})
		if err != nil {
			t.Fatal(err)
		}
		checked, err := checkedOf(config.Group{Name: "g", Config: c}, false)
		if err != nil {
			t.Fatal(err)
		}
		text := timesText(checked)
		for _, line := range want {
			if !strings.Contains(text, line) {
				t.Errorf("%s: no %q in\n%s", settings, line, text)
			}
		}
	}
}
