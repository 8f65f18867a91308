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

// questions are what can be asked with yes or no; each says why not.
var questions = []struct {
	path string
	no   func(status.Daemon) string
}{
	{"/leader", status.Daemon.NotLeader},
	{"/replica", status.Daemon.NotReplica},
	{"/health", status.Daemon.NotHealthy},
	{"/livez", status.Daemon.Stuck},
	{"/readyz", status.Daemon.NotReady},
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
		routes[i] = route{q.path, reading, a.probe(q.no)}
	}
	return routes
}

// probe answers 200, or 503 with the reason.
func (a *api) probe(why func(status.Daemon) string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		v := a.opt.View()
		code, no := http.StatusOK, why(v)
		if no != "" {
			code = http.StatusServiceUnavailable
		}
		a.respond(w, code, answer{stampOf(v), no == "", no, v.LeaseRemaining})
	}
}
