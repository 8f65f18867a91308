package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"zkelectd/internal/operator/status"
)

// monitor is a real Prometheus server that scrapes a fleet and has its alerts.
type monitor struct {
	f    *fleet
	addr string
}

// startPrometheus starts Prometheus for daemons that listen on their sockets.
func (f *fleet) startPrometheus(rules string, ids ...string) monitor {
	f.t.Helper()
	var targets []string
	for _, id := range ids {
		targets = append(targets, f.proxy(id))
	}
	config := filepath.Join(f.dir, "prometheus.yml")
	text := fmt.Sprintf("global: {scrape_interval: 500ms, evaluation_interval: 500ms}\nrule_files: [rules.yml]\n"+
		"scrape_configs: [{job_name: zkelectd, static_configs: [{targets: ['%s']}]}]\n", strings.Join(targets, "', '"))
	for file, text := range map[string]string{config: text, filepath.Join(f.dir, "rules.yml"): rules} {
		put(f.t, file, text)
	}
	program, err := exec.LookPath("prometheus")
	if err != nil {
		f.t.Fatalf("%v: run scripts/install-prometheus.sh", err)
	}
	p := f.startCommand("prometheus", exec.Command(program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(f.dir, "tsdb"), "--web.listen-address=127.0.0.1:0"))
	listens := regexp.MustCompile(`msg="Listening on" address=(\S+)`)
	var found []string
	f.eventually("Prometheus answers", func() bool {
		found = listens.FindStringSubmatch(p.Output())
		return found != nil && strings.Contains(p.Output(), "Server is ready")
	})
	return monitor{f, found[1]}
}

// get sends a GET request to the API, and returns the error in its answer.
func (p monitor) get(query string, into any) string {
	p.f.t.Helper()
	req, err := http.NewRequestWithContext(p.f.t.Context(), http.MethodGet, "http://"+p.addr+"/api/v1/"+query, nil)
	if err != nil {
		p.f.t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		p.f.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer := struct {
		Error string
		Data  any
	}{Data: into}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		p.f.t.Fatalf("%s: %v", query, err)
	}
	return answer.Error
}

// values returns the values of the series of an expression.
func (p monitor) values(expr string) []string {
	p.f.t.Helper()
	var data struct {
		Result []struct{ Value [2]any }
	}
	if fault := p.get("query?query="+url.QueryEscape(expr), &data); fault != "" {
		p.f.t.Fatalf("%s: %s", expr, fault)
	}
	var all []string
	for _, r := range data.Result {
		all = append(all, fmt.Sprint(r.Value[1]))
	}
	return all
}

func (p monitor) becomes(expr, want string) {
	p.f.t.Helper()
	var got string
	p.f.eventually(expr+" is "+want, func() bool {
		got = strings.Join(p.values(expr), " ")
		return got == want
	}, func() string { return "it is " + got })
}

// A real Prometheus with the packaged alerts monitors real daemons: it sees one leader, and alerts when there is none. Every
// panel of the dashboard has data.
func TestPrometheusMonitorsAFleet(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../deploy/prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	rules := strings.NewReplacer("interval: 15s", "interval: 500ms", "for: 1m\n", "for: 2s\n").Replace(string(data))
	f := newFleet(t)
	for i, id := range []string{"a", "b"} {
		f.configure(id, fmt.Sprintf("dc%d", i+1), 100-i, fmt.Sprintf("http: {listen: 'unix:%s'}\n", f.socket(id)))
		f.start(id)
		f.answers(id, "/readyz", 200)
	}
	f.until("both have joined", func(g status.Group) bool { return len(g.Members) == 2 && leads("a")(g) })
	p := f.startPrometheus(rules, "a", "b")
	p.becomes("sum(zkelectd_is_leader)", "1")
	p.becomes("count(up)", "2")
	p.becomes("group:zkelectd_is_leader:sum", "1")
	p.becomes("sum(group_site:zkelectd_members:eligible)", "2")
	p.becomes("count(instance:zkelectd_lease_remaining:ratio > 0.3)", "1")
	f.dashboardShows(p)
	if n := p.values(`ALERTS{severity="critical"}`); len(n) != 0 { // a busy machine may cause warnings
		t.Errorf("%d critical alerts of a healthy group", len(n))
	}

	f.submit("pause", "--hard", "--for", "1h")
	p.becomes(`group_mode:zkelectd_paused:max{mode="hard"}`, "1")
	f.stop("a")
	p.becomes(`count(ALERTS{alertname="ZkelectdNoLeader", alertstate="firing"})`, "1")
	p.becomes(`count(ALERTS{alertname="ZkelectdPausedHard", alertstate="pending"})`, "1")
	p.becomes(`count(ALERTS{alertname="ZkelectdDaemonDown", alertstate="pending"})`, "1")
	f.submit("resume")
	p.becomes("sum(zkelectd_is_leader)", "1")
	p.becomes(`ALERTS{alertname="ZkelectdNoLeader"}`, "")
	p.becomes(`sum(zkelectd_transitions_total{cause="stopped", result="ready"})`, "1")

	var loaded struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	if fault := p.get("rules", &loaded); fault != "" {
		t.Fatal(fault)
	}
	for _, g := range loaded.Groups {
		for _, r := range g.Rules {
			if r.Health != "ok" {
				t.Errorf("%s is %s: %s", r.Name, r.Health, r.LastError)
			}
		}
	}
	f.checkInvariants()
}

// dashboardShows runs the query of each panel. Some results are empty while there are no problems.
func (f *fleet) dashboardShows(p monitor) {
	f.t.Helper()
	data, err := os.ReadFile("../../deploy/grafana/zkelectd.json")
	if err != nil {
		f.t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &dashboard); err != nil {
		f.t.Fatal(err)
	}
	filled := strings.NewReplacer("$group", path.Base(f.paths.Root), "${group:regex}", path.Base(f.paths.Root), "$__rate_interval", "1m")
	for _, panel := range dashboard.Panels {
		for _, q := range panel.Targets {
			expr := filled.Replace(q.Expr)
			if strings.HasSuffix(expr, "> 0") { // only for events
				p.values(expr)
				continue
			}
			f.eventually(fmt.Sprintf("the panel %q shows something: %s", panel.Title, expr), func() bool { return len(p.values(expr)) > 0 })
		}
	}
}
