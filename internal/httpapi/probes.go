package httpapi

import (
	"net/http"

	"zkelectd/internal/cluster"
	"zkelectd/internal/status"
)

// probeResponse is the response of a probe.
type probeResponse struct {
	stamp
	Answer bool `json:"answer"`
	// Why is why the answer is no; empty if it is yes.
	Why            string           `json:"why,omitempty"`
	LeaseRemaining cluster.Duration `json:"lease_remaining,omitempty"`
}

// probeChecks are the probes. Each check returns nil for yes, or the reason for no.
var probeChecks = []struct {
	path  string
	check func(status.Daemon) error
}{
	{"/leader", status.Daemon.CheckLeader},
	{"/replica", status.Daemon.CheckReplica},
	{"/health", status.Daemon.CheckHealthy},
	{"/livez", status.Daemon.CheckLoop},
	{"/readyz", status.Daemon.CheckReady},
}

// ProbePaths returns the paths of the probes, which answer yes or no.
func ProbePaths() []string {
	paths := make([]string, len(probeChecks))
	for i, q := range probeChecks {
		paths[i] = q.path
	}
	return paths
}

func (a *api) probeRoutes() []route {
	routes := make([]route, len(probeChecks))
	for i, q := range probeChecks {
		routes[i] = route{q.path, readMethods, a.probe(q.check)}
	}
	return routes
}

// probe responds with 200 for yes, or 503 and the reason for no.
func (a *api) probe(check func(status.Daemon) error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		v := a.opt.View()
		code, body := http.StatusOK, probeResponse{stamp: stampOf(v), Answer: true, LeaseRemaining: v.LeaseRemaining}
		if err := check(v); err != nil {
			code, body.Answer, body.Why = http.StatusServiceUnavailable, false, err.Error()
		}
		a.respond(w, code, body)
	}
}
