package operator

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"zkelectd/internal/config"
	"zkelectd/internal/operator/losses"
)

// configurations are the columns of the table in docs/safety.md.
var configurations = []struct{ name, settings string }{
	{"the defaults", ""},
	{"`watchdog_device.mode: required`", "watchdog_device: {mode: required}"},
	{"`fencing.required: true`", "fencing: {levels: {command: [/bin/true]}, required: true}"},
	{"and `fencing.skip_wait: true`", "fencing: {levels: {command: [/bin/true]}, required: true, skip_wait: true}"},
	{"`failsafe.enabled: true`", "failsafe: {enabled: true}"},
}

func lossesOf(t *testing.T, settings string, alone bool) []losses.Loss {
	t.Helper()
	c, err := config.Load(config.Sources{Content: []byte("zookeeper: {servers: [zk1]}\nnode: {id: n1}\nchild: {command: [app]}\n" + settings), File: "zkelectd.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Budget(c.ZooKeeper.SessionTimeout)
	if err != nil {
		t.Fatal(err)
	}
	return Losses(c, b, alone)
}

// The table in docs/safety.md is what the code says.
func TestTheDocumentedLosses(t *testing.T) {
	rows := []string{"| what is lost |", "| --- |"}
	for i, c := range configurations {
		rows[0] += " " + c.name + " |"
		rows[1] += " --- |"
		for j, l := range lossesOf(t, c.settings, false) {
			if i == 0 {
				rows = append(rows, "| "+l.Kind.Words()+" |")
			}
			rows[2+j] += " " + cell(l) + " |"
		}
	}
	data, err := os.ReadFile("../../docs/safety.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Join(rows, "\n"); !strings.Contains(string(data), "\n"+want+"\n\n") {
		t.Errorf("docs/safety.md lacks this table:\n%s", want)
	}
}

func cell(l losses.Loss) string {
	switch l.Outcome {
	case losses.NoLeader:
		return "**no leader**, and " + l.Time()
	case losses.TwoLeaders:
		return l.Time() + ", **two leaders**"
	case losses.SameLeader:
		return "the leader works on"
	}
	return l.Time()
}

// Each setting that matters reaches the table.
func TestLossesOfAConfiguration(t *testing.T) {
	for settings, want := range map[string]string{
		"": "daemon 900ms, host 3.67s, partition 3.67s, zookeeper 12.67s after it is back, stand_still 3.67s; not survived: zookeeper stand_still",
		"hooks: {post_stop: [a], on_change: [b], pre_start: [c]}":                           "daemon 2.7s, host 3.67s, partition 3.67s, zookeeper 12.67s after it is back, stand_still 3.67s; not survived: zookeeper stand_still",
		"watchdog_device: {mode: automatic}":                                                "daemon 900ms, host 3.67s, partition 3.67s, zookeeper 12.67s after it is back, stand_still 3.67s; not survived: zookeeper stand_still",
		"election: {lost_after: 5s}":                                                        "daemon 900ms, host 5s, partition 5s, zookeeper 12.67s after it is back, stand_still 5s; not survived: zookeeper stand_still",
		"election: {lease: 900ms}":                                                          "daemon 300ms, host 1.22s, partition 1.22s, zookeeper 10.22s after it is back, stand_still 1.22s; not survived: zookeeper stand_still",
		"fencing: {levels: [{command: [a]}], timeout: 20s, skip_wait: true}":                "daemon 900ms, host 3.67s, partition 3.67s, zookeeper 12.67s after it is back, stand_still 3.67s; not survived: zookeeper stand_still",
		"fencing: {levels: [{command: [a]}, {command: [b]}], timeout: 20s, required: true}": "daemon 900ms, host 45.67s, partition 45.67s, zookeeper 51s after it is back, stand_still 45.67s; not survived: zookeeper",
	} {
		var times, lost []string
		for _, l := range lossesOf(t, settings, false) {
			times = append(times, fmt.Sprintf("%s %s", l.Kind, l.Time()))
			if !l.Survived() {
				lost = append(lost, string(l.Kind))
			}
		}
		if got := strings.Join(times, ", ") + "; not survived: " + strings.Join(lost, " "); got != want {
			t.Errorf("%s:\n got %s\nwant %s", settings, got, want)
		}
	}
	for _, l := range lossesOf(t, "watchdog_device: {mode: automatic}", false) {
		if l.Kind == losses.StandStill && !strings.Contains(l.Why, "automatic") {
			t.Errorf("an automatic device: %s", l.Why)
		}
	}
	for _, l := range lossesOf(t, "failsafe: {enabled: true, max: 1h}", false) {
		if l.Kind == losses.ZooKeeper && (l.Outcome != losses.SameLeader || !strings.Contains(l.Why, "1h0m0s")) {
			t.Errorf("failsafe mode: %+v", l)
		}
	}
	for _, l := range lossesOf(t, "", true) {
		if l.Survived() != (l.Kind == losses.Daemon) {
			t.Errorf("alone: %+v", l)
		}
	}
}
