package main

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/status"
	"zkelectd/internal/whatif"
)

// Scripts rely on docs/json.md: every field of the output is there, under its command.
func TestTheJSONIsDocumented(t *testing.T) {
	data, err := os.ReadFile("../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.Split(string(data), "\n## ")
	for command, v := range map[string]any{
		"zkelectd status": status.Group{}, "zkelectd explain": whatif.Explanation{}, "zkelectd history": cluster.PastTerm{}, "zkelectd whatif": forecast{},
		"move": report{}, "zkelectd policy show": cluster.Policy{},
	} {
		text := ""
		for _, s := range sections {
			if strings.HasPrefix(s, "`"+command+"`") {
				text = s
			}
		}
		fields(reflect.TypeOf(v), func(name string) {
			if !strings.Contains(text, "`"+name+"`") {
				t.Errorf("%s: %q is not in docs/json.md", command, name)
			}
		})
	}
}

// fields calls f with the name of every field of a type, including nested ones.
func fields(t reflect.Type, f func(name string)) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		fields(t.Elem(), f)
	case reflect.Struct:
		for i := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			if name != "" && name != "-" {
				f(name)
			}
			if name != "" && name != "-" || t.Field(i).Anonymous {
				fields(t.Field(i).Type, f)
			}
		}
	}
}
