package cli

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/host"
	"zkelectd/internal/operator/status"
)

// printedJSON are the types of the output with -o json, by their section in docs/json.md.
var printedJSON = map[string]any{
	"zkelectd status": struct {
		groupsStatus
		gap
		jobStatus
	}{}, "zkelectd doctor": doctorReport{}, "zkelectd check": checkedConfig{}, "zkelectd explain": whatif.Explanation{}, "zkelectd history": cluster.PastTerm{},
	"zkelectd slots": slotsState{}, "zkelectd whatif": forecasts{}, "move": rolloutResult{}, "zkelectd policy": cluster.Policy{},
	"zkelectd leader": shownLeader{}, "zkelectd init": createdGroups{}, "zkelectd reload": host.ReloadResult{},
	"zkelectd policy --apply": appliedPolicy{}, "zkelectd acl": tree{}, "zkelectd acl --apply": appliedACLs{}, "zkelectd repair": repairs{},
	"zkelectd group delete": deletedGroup{}, "zkelectd fence": fencedNode{}, "zkelectd force": forcedGroup{}, "zkelectd gameday": drillResult{},
}

// Scripts rely on docs/json.md: every field of the output is there, under its command.
func TestTheJSONIsDocumented(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.Split(string(data), "\n## ")
	for command, v := range printedJSON {
		text := ""
		for _, s := range sections {
			if strings.HasPrefix(s, "`"+command+"`") {
				text = s
			}
		}
		if text == "" {
			t.Errorf("%s: it is not in docs/json.md", command)
		}
		fields(reflect.TypeOf(v), func(name string, _ reflect.Type) {
			if !strings.Contains(text, "`"+name+"`") {
				t.Errorf("%s: %q is not in docs/json.md", command, name)
			}
		})
	}
}

// notJSON are the commands that run something, whose output is not theirs.
var notJSON = []string{"run", "exec"}

// Each command that a person uses has -o json. What it prints then is one JSON value, and nothing else is on its standard
// output; if the command is refused, there is nothing.
func TestEveryCommandPrintsJSON(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.startLeader("a", "fencing: {levels: {command: [/bin/true]}}\n")
	f.configure("b", "dc1", 50, "")
	f.start("b")
	f.until("b has joined", func(g status.Group) bool { return len(g.Members) == 2 && leads("a")(g) })
	slotted := newFleet(t)
	slotted.configure("s", "dc1", 100, "slots: {count: 2}\n")
	slotted.start("s")
	slotted.eventually("slots", func() bool { _, err := slotted.runAs("s", "slots"); return err == nil })
	slotted.stop("s")
	if out, err := zkelectd("init", "--zk", f.servers[0], "--root", f.paths.Root+"-unused"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := map[string][]string{
		"status": {""}, "explain": {""}, "whatif": {"--all"}, "history": {""}, "check": {"--offline"}, "doctor": {""},
		"leader": {"", "--is", "--is --id b"}, "acl": {"", "--apply --open --dry-run", "--apply --open", "--rotate-keys"},
		"policy": {"", "--apply", "--apply --dry-run"}, "policy edit": {"", "--yes"}, "repair": {"", "--dry-run"}, "reload": {""},
		"init":         {"", "--root " + f.paths.Root + "-new"},
		"group delete": {"", "--yes -g never", "--root " + f.paths.Root + "-never", "--dry-run --root " + f.paths.Root + "-unused"},
		"force":        {"--dry-run", "--confirm x:1"}, "fence": {"b", "b --dry-run", "b --yes"}, "gameday": {""},
		"slots": {"", "3", "3"}, "cordon": {"b", "b --dry-run"}, "uncordon": {"b"}, "drain": {"b --dry-run"},
		"pause": {""}, "resume": {"", ""}, "clear-strikes": {"--all"}, "forget": {"--lost"}, "reelect": {"--wait"},
		"approve": {"", "b --reject"},
		"move":    {"b --force --dry-run", "nowhere", "b --wait"},
	}
	leaves(root(), func(cmd *cobra.Command) {
		name := strings.TrimPrefix(cmd.CommandPath(), "zkelectd ")
		if slices.Contains(notJSON, name) {
			return
		}
		if name == "group" {
			name = "group delete"
		}
		if len(lines[name]) == 0 {
			t.Errorf("%s: it is not tried", name)
		}
		printed := 0
		for _, line := range lines[name] {
			file := f.file("a")
			if name == "slots" {
				file = slotted.file("s")
			}
			words := strings.Fields(name + " " + line + " -o json --config " + file)
			cmd := exec.Command("zkelectd", words...)
			cmd.Env = append(os.Environ(), "VISUAL=true") // an editor that changes nothing
			out, err := cmd.Output()
			var ended *exec.ExitError
			switch errors.As(err, &ended); {
			case json.Valid(out):
				printed++
			case len(out) > 0 || ended == nil || len(ended.Stderr) == 0 || strings.Contains(string(ended.Stderr), "unknown"):
				t.Errorf("%s %s: %v\n%s", name, line, err, out)
			}
		}
		if printed == 0 && name != "force" && name != "gameday" && name != "approve" { // see their own tests
			t.Errorf("%s: it prints no JSON", name)
		}
	})
}

// bareDuration matches names of durations that have to be text: a number needs a unit, which differs from field to field.
var bareDuration = regexp.MustCompile(`(^|_)(ns|us|ms|s|seconds|minutes|age|remaining|duration|timeout|delay|leaderless|lease)$`)

// Durations are text such as "1m30s", in all commands and in the HTTP API. Only latency_ms is a number: a measurement, with which
// ranking programs and expressions calculate.
func TestDurationsInJSONAreText(t *testing.T) {
	t.Parallel()
	const measured = "latency_ms"
	printed := maps.Clone(printedJSON)
	printed["HTTP API"] = status.Daemon{}
	for command, v := range printed {
		fields(reflect.TypeOf(v), func(name string, of reflect.Type) {
			if of.Kind() == reflect.Pointer {
				of = of.Elem()
			}
			if of == reflect.TypeFor[cluster.Duration]() {
				return // it writes itself as text
			}
			number := of.Kind() >= reflect.Int && of.Kind() <= reflect.Float64
			if of == reflect.TypeFor[time.Duration]() || number && name != measured && bareDuration.MatchString(name) {
				t.Errorf("%s: %q is a duration, but a bare number (%v)", command, name, of)
			}
		})
	}
	property := regexp.MustCompile(`(?m)^ +([a-z_]+): \{type: (?:number|integer)\b`)
	found := 0
	for _, m := range property.FindAllStringSubmatch(read("../../docs/openapi.yaml"), -1) {
		// A client of /v1/lease compares with the clock of its kernel, in nanoseconds.
		ofLease := slices.Contains([]string{"lease_end_ns", "lease_left_ns", "boottime_ns"}, m[1])
		if found++; !ofLease && m[1] != measured && bareDuration.MatchString(m[1]) {
			t.Errorf("docs/openapi.yaml: %q is a duration, but a bare number", m[1])
		}
	}
	if found == 0 {
		t.Error("no number is in docs/openapi.yaml")
	}
}

// fields calls f with the name and the type of every field of a type, including nested ones.
func fields(t reflect.Type, f func(name string, of reflect.Type)) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		fields(t.Elem(), f)
	case reflect.Struct:
		for i := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			if name != "" && name != "-" {
				f(name, t.Field(i).Type)
			}
			if name != "" && name != "-" || t.Field(i).Anonymous {
				fields(t.Field(i).Type, f)
			}
		}
	}
}
