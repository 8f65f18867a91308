package web

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
)

// probeResponse is the response of a probe.
type probeResponse struct {
	stamp
	// Root is the group's znode: groups of the same name may exist at several roots, also on one host.
	Root   string `json:"root,omitempty"`
	Answer bool   `json:"answer"`
	// Reason is why the answer is no; empty if it is yes.
	Reason string `json:"reason,omitempty"`
	// NotReady lists the groups in which the daemon is not ready, if it has several.
	NotReady       []string         `json:"not_ready,omitempty"`
	LeaseRemaining cluster.Duration `json:"lease_remaining,omitempty"`
	// Value is what the leader's work publishes, as far as this daemon knows.
	Value string `json:"value,omitempty"`
	// Unkillable, Fencing and Failsafe are those of [status.Daemon]: `zkelectd status` asks the leader for them here.
	Unkillable string           `json:"unkillable,omitempty"`
	Fencing    *status.Fencing  `json:"fencing,omitempty"`
	Failsafe   *status.Failsafe `json:"failsafe,omitempty"`
}

// probeChecks are the probes. Each check returns nil for yes, or the reason for no.
var probeChecks = []struct {
	path  string
	check func(status.Daemon) error
}{
	{"/leader", status.Daemon.CheckLeader},
	{"/heir", status.Daemon.CheckHeir},
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

func (a *api) probeRoutes() []groupRoute {
	routes := make([]groupRoute, len(probeChecks))
	for i, q := range probeChecks {
		routes[i] = groupRoute{path: q.path, methods: probeMethods, serve: a.probe(q.check), probe: true}
	}
	return routes
}

// probe responds with 200 for yes, or 503 and the reason for no.
func (a *api) probe(check func(status.Daemon) error) groupHandler {
	return func(w http.ResponseWriter, _ *http.Request, g *Group) {
		v := g.view()
		code, body := http.StatusOK, probeResponse{
			stamp: stampOf(v), Root: v.Root, Answer: true, LeaseRemaining: v.LeaseRemaining, Unkillable: v.Unkillable,
			Fencing: v.Fencing, Failsafe: v.Failsafe,
		}
		if v.Holder != nil {
			body.Value = v.Holder.Value
		}
		if err := check(v); err != nil {
			code, body.Answer, body.Reason = http.StatusServiceUnavailable, false, err.Error()
		}
		a.respond(w, code, body)
	}
}

// hostProbe returns the check of a probe that is about a daemon with all its groups, nil for other paths. A load
// balancer asks for a group; who restarts the daemon, or waits until it is ready, asks for all of them.
func hostProbe(path string) func(status.Host) ([]string, error) {
	switch path {
	case "/livez":
		return func(h status.Host) ([]string, error) { return nil, h.CheckLoops() }
	case "/readyz":
		return status.Host.CheckReady
	}
	return nil
}

// probeHost is probe for all groups of the daemon.
func (a *api) probeHost(path string) http.HandlerFunc {
	check := hostProbe(path)
	one := a.probe(probeChecks[slices.Index(ProbePaths(), path)].check)
	return func(w http.ResponseWriter, r *http.Request) {
		groups := a.opt.Groups()
		if len(groups) == 1 {
			one(w, r, groups[0])
			return
		}
		code, body := http.StatusOK, probeResponse{stamp: a.stamp(), Answer: true}
		if names, err := check(a.views()); err != nil {
			code, body.Answer, body.Reason, body.NotReady = http.StatusServiceUnavailable, false, err.Error(), names
		}
		a.respond(w, code, body)
	}
}

// Probe sends one of the probes (see [ProbePaths]) to the daemon at this endpoint, about a group, or without one if
// group is empty. It returns nil if the answer is yes, and the reason otherwise.
func (e Endpoint) Probe(ctx context.Context, path, group string) error {
	if !slices.Contains(ProbePaths(), path) {
		return fmt.Errorf("%q is not one of %s", path, strings.Join(ProbePaths(), ", "))
	}
	if group != "" {
		path = strings.Replace(groupPath(path), "{group}", url.PathEscape(group), 1)
	}
	response, err := e.Send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return checkProbeResponse(response)
}

// Read returns what the daemon at this endpoint answers to a GET of a path, at most limit bytes.
func (e Endpoint) Read(ctx context.Context, path string, limit int64) ([]byte, error) {
	response, err := e.Send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, limit))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, response.Status)
	}
	return body, err
}

// Send sends a request to the daemon at this endpoint.
func (e Endpoint) Send(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	network, target := "tcp", e.Addr
	if file, isPath := strings.CutPrefix(e.Addr, unixPrefix); isPath {
		network, target = "unix", file
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		// Ignore the URL's host: the address may be a path, or all addresses of this host.
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, target)
		},
	}
	scheme := "http://"
	if e.Web.TLSEnabled() {
		var err error
		if transport.TLSClientConfig, err = e.Web.pinnedTLSConfig(); err != nil {
			return nil, err
		}
		scheme = "https://"
	}
	request, err := http.NewRequestWithContext(ctx, method, scheme+"localhost"+path, body)
	if err != nil {
		return nil, err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, fmt.Errorf("no answer on %s %s: %w", cmp.Or(e.Setting, "http.listen"), e.Addr, err)
	}
	return response, nil
}

// ErrNotZkelectd is the error for an answer of another program.
var ErrNotZkelectd = errors.New("is not zkelectd")

// checkProbeResponse returns nil if both the status and the body say yes. Another program may listen on that port, so
// the status alone is not enough.
func checkProbeResponse(response *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("the response was cut off: %w", err)
	}
	var a probeResponse
	switch err := json.Unmarshal(body, &a); {
	case err != nil || a.State == "":
		return fmt.Errorf("the server that responded with %s %w", response.Status, ErrNotZkelectd)
	case response.StatusCode == http.StatusOK && a.Answer:
		return nil
	case a.Reason == "":
		return errors.New(response.Status)
	}
	return errors.New(a.Reason)
}
