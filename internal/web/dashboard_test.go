package web

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

const dashboardFile = "../../deploy/grafana/zkelectd.json"

// The dashboard queries exported metrics of the selected data source and group. A test in internal/cli runs its queries.
func TestDashboardUsesExportedMetrics(t *testing.T) {
	data, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	type source struct{ Type, UID string }
	var dashboard struct {
		SchemaVersion int
		Templating    struct {
			List []struct{ Name, Type string }
		}
		Panels []struct {
			ID         int
			Type       string
			Title      string
			Datasource source
			Targets    []struct {
				Expr       string
				Datasource source
			}
		}
	}
	if err := json.Unmarshal(data, &dashboard); err != nil {
		t.Fatalf("%s: %v", dashboardFile, err)
	}
	if dashboard.SchemaVersion < 39 {
		t.Errorf("the schema version is %d", dashboard.SchemaVersion)
	}
	for _, name := range []string{"datasource", "group"} {
		if !slices.ContainsFunc(dashboard.Templating.List, func(v struct{ Name, Type string }) bool { return v.Name == name }) {
			t.Errorf("there is no variable %s", name)
		}
	}
	for _, name := range []string{"zkelectd_is_leader", "zkelectd_failsafe_active", "zkelectd_failsafe_ready", "zkelectd_failsafe_rounds_total"} {
		if !strings.Contains(string(data), name) {
			t.Errorf("no panel shows %s", name)
		}
	}
	chosen := source{"prometheus", "${datasource}"}
	seen := make(map[int]bool)
	var row string
	for _, p := range dashboard.Panels {
		if p.Type == "row" {
			row = p.Title
		}
		if seen[p.ID] || p.ID == 0 {
			t.Errorf("%q has the id %d, which is 0 or used twice", p.Title, p.ID)
		}
		seen[p.ID] = true
		if p.Type != "row" && (len(p.Targets) == 0 || p.Datasource != chosen) {
			t.Errorf("%q has no query, or its data source is %v", p.Title, p.Datasource)
		}
		for _, q := range p.Targets {
			if q.Datasource != chosen {
				t.Errorf("%q queries %v", p.Title, q.Datasource)
			}
			if row != "All groups" && !strings.Contains(q.Expr, "$group") && !strings.Contains(q.Expr, "${group:regex}") {
				t.Errorf("%q does not follow the chosen group: %s", p.Title, q.Expr)
			}
			for _, name := range unknown(q.Expr, nil) {
				t.Errorf("%q: no daemon exports %s", p.Title, name)
			}
		}
	}
}
