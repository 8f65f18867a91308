package suggest

import "testing"

func TestNearest(t *testing.T) {
	hosts := []string{"n1", "n2", "n3", "n4"}
	for _, c := range []struct {
		name  string
		known []string
		want  string
	}{
		{"n44", hosts, "n4"},
		{"n9", hosts, ""}, // each is as near
		{"web-fra-1", []string{"web-fra-01", "web-ams-01"}, "web-fra-01"},
		{"comand", []string{"command", "unit"}, "command"},
		{"command", []string{"command", "comand"}, "command"},
		{"mailserver", []string{"db"}, ""},
		{"x", nil, ""},
		{"prio", []string{"id", "site", "priority"}, "priority"},
		{"prio", []string{"priority", "priorities"}, ""},
	} {
		if got := Nearest(c.name, c.known); got != c.want {
			t.Errorf("%s in %v: got %q, want %q", c.name, c.known, got, c.want)
		}
	}
}
