package web

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const alertsFile, alertCasesFile = "../../deploy/prometheus/alerts.yml", "../../deploy/prometheus/alerts_test.yml"

// rule is an alert or recording rule in deploy/prometheus/alerts.yml.
type rule struct {
	Record, Alert, Expr string
	Labels, Annotations map[string]string
}

func rules(t *testing.T) []rule {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []rule }
	}
	read(t, alertsFile, &file)
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatalf("%s has no rules", alertsFile)
	}
	return all
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

var (
	named   = regexp.MustCompile(`[a-zA-Z_:]*zkelectd_[a-zA-Z0-9_:]+`)
	ofParts = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// unknown returns the metrics in an expression that no daemon exports and no rule records.
func unknown(expr string, recorded []string) []string {
	var all []string
	for _, name := range named.FindAllString(expr, -1) {
		known := slices.Contains(recorded, name) || slices.ContainsFunc(metrics, func(m metric) bool {
			return m.name == name || m.kind == histogram && ofParts.MatchString(name) && m.name == ofParts.ReplaceAllString(name, "")
		})
		if !known {
			all = append(all, name)
		}
	}
	return all
}

func TestUnknownMetricsAreFound(t *testing.T) {
	got := unknown(`zkelectd_term + zkelectd_terms > on (a) rate(zkelectd_leaderless_duration_seconds_sum[5m]) + zkelectd_term_sum + g:zkelectd_x:sum + g:zkelectd_y:sum`, []string{"g:zkelectd_x:sum"})
	if strings.Join(got, " ") != "zkelectd_terms zkelectd_term_sum g:zkelectd_y:sum" {
		t.Errorf("metrics: got %q", got)
	}
}

// An alert on a metric that does not exist would silently never fire.
func TestAlertsUseExportedMetrics(t *testing.T) {
	var recorded []string
	for _, r := range rules(t) {
		for _, name := range unknown(r.Expr, recorded) {
			t.Errorf("%s: %s%s: no daemon exports %s, and no earlier rule records it", alertsFile, r.Alert, r.Record, name)
		}
		if r.Record != "" {
			recorded = append(recorded, r.Record)
		}
	}
}

// promtool (make alerts) runs the test cases. This checks that each alert has one in which it fires and one in which it does not.
func TestEveryAlertHasTestCases(t *testing.T) {
	var cases struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alertname string
				ExpAlerts []any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	read(t, alertCasesFile, &cases)
	fires, silent := make(map[string]bool), make(map[string]bool)
	for _, c := range cases.Tests {
		for _, a := range c.AlertRuleTest {
			if len(a.ExpAlerts) > 0 {
				fires[a.Alertname] = true
			} else {
				silent[a.Alertname] = true
			}
		}
	}
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		if !fires[r.Alert] || !silent[r.Alert] {
			t.Errorf("%s: %s has a case where it fires: %t; one where it does not: %t", alertCasesFile, r.Alert, fires[r.Alert], silent[r.Alert])
		}
		for _, key := range []string{"summary", "description"} {
			if r.Annotations[key] == "" {
				t.Errorf("%s: %s has no %s", alertsFile, r.Alert, key)
			}
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("%s: %s has the severity %q", alertsFile, r.Alert, r.Labels["severity"])
		}
		if want := "docs/operations.md#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
			t.Errorf("%s: the runbook of %s is %q, want %q", alertsFile, r.Alert, r.Annotations["runbook_url"], want)
		}
	}
}

// The runbook has a section for each alert, and none for an alert that no longer exists.
func TestEveryAlertHasARunbook(t *testing.T) {
	const runbook = "../../docs/operations.md"
	data, err := os.ReadFile(runbook)
	if err != nil {
		t.Fatal(err)
	}
	var alerts, sections []string
	for _, r := range rules(t) {
		if r.Alert != "" {
			alerts = append(alerts, r.Alert)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^### (Zkelectd\w+)\n\n[^#](?s:.*?)\n\n\*\*Look\*\* (?s:.*?)\n\n\*\*Do:\*\*\s`).FindAllStringSubmatch(string(data), -1) {
		sections = append(sections, m[1])
	}
	slices.Sort(alerts)
	slices.Sort(sections)
	if !slices.Equal(alerts, sections) {
		t.Errorf("%s has sections (what it means, Look, Do) of\n%q, and the alerts are\n%q", runbook, sections, alerts)
	}
}

func TestDocumentsNameExistingMetrics(t *testing.T) {
	for _, name := range []string{"metrics.md", "operations.md", "sizing.md", "http-api.md"} {
		data, err := os.ReadFile("../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, metric := range unknown(string(data), nil) {
			t.Errorf("docs/%s: no daemon exports %s", name, metric)
		}
	}
}
