package httpapi

import (
	"net/http"
	"time"

	"zkelectd/internal/status"
)

// answer is what the probes say.
type answer struct {
	stamp
	Answer bool `json:"answer"`
	// Why is the reason for a no.
	Why            string        `json:"why,omitempty"`
	LeaseRemaining time.Duration `json:"lease_remaining_ns,omitempty"`
}

func (a *api) probes() []route {
	return []route{
		{"/leader", a.probe(status.Daemon.NotLeader)},
		{"/replica", a.probe(status.Daemon.NotReplica)},
		{"/health", a.probe(status.Daemon.NotHealthy)},
		{"/livez", a.probe(status.Daemon.Stuck)},
		{"/readyz", a.probe(status.Daemon.NotReady)},
	}
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
