package cli

import (
	"maps"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator/status"
)

// printedJSON are the types of the output with -o json, by their section in docs/json.md.
var printedJSON = map[string]any{
	"zkelectd status": struct {
		groupsStatus
		gap
	}{}, "zkelectd doctor": doctorReport{}, "zkelectd check": checkedConfig{}, "zkelectd explain": whatif.Explanation{}, "zkelectd history": cluster.PastTerm{},
	"zkelectd slots": slotsState{}, "zkelectd whatif": forecasts{}, "move": rolloutResult{}, "zkelectd move --scheduled": listedSchedule{}, "zkelectd policy": cluster.Policy{},
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
		fields(reflect.TypeOf(v), func(name string, _ reflect.Type) {
			if !strings.Contains(text, "`"+name+"`") {
				t.Errorf("%s: %q is not in docs/json.md", command, name)
			}
		})
	}
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
		if found++; m[1] != measured && bareDuration.MatchString(m[1]) {
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
