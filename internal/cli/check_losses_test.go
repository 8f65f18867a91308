package cli

import (
	"strings"
	"testing"

	"zkelectd/internal/config"
)

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
		"child: {command: [app]}\nslots: {count: 3}\npolicy: {failback: manual}": {"\n'zkelectd reelect -g g/0' or 'zkelectd move -g g/0', here for slot 0.\n"},
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
