package httpapi

import (
	"net/http"

	"zkelectd/internal/cluster"
	"zkelectd/internal/status"
)

// answer is what the probes say.
type answer struct {
	stamp
	Answer bool `json:"answer"`
	// Why is the reason for a no.
	Why            string           `json:"why,omitempty"`
	LeaseRemaining cluster.Duration `json:"lease_remaining,omitempty"`
}

// questions are what can be asked with yes or no; each check returns why not.
var questions = []struct {
	path  string
	check func(status.Daemon) error
}{
	{"/leader", status.Daemon.CheckLeader},
	{"/replica", status.Daemon.CheckReplica},
	{"/health", status.Daemon.CheckHealthy},
	{"/livez", status.Daemon.CheckLoop},
	{"/readyz", status.Daemon.CheckReady},
}

// ProbePaths are the paths that are answered with yes or no.
func ProbePaths() []string {
	paths := make([]string, len(questions))
	for i, q := range questions {
		paths[i] = q.path
	}
	return paths
}

func (a *api) probes() []route {
	routes := make([]route, len(questions))
	for i, q := range questions {
		routes[i] = route{q.path, reading, a.probe(q.check)}
	}
	return routes
}

// probe answers 200, or 503 with the reason.
func (a *api) probe(check func(status.Daemon) error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		v := a.opt.View()
		code, body := http.StatusOK, answer{stamp: stampOf(v), Answer: true, LeaseRemaining: v.LeaseRemaining}
		if err := check(v); err != nil {
			code, body.Answer, body.Why = http.StatusServiceUnavailable, false, err.Error()
		}
		a.respond(w, code, body)
	}
}
