package web

import (
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
)

// Probe sends one of the probes (see [ProbePaths]) to the daemon at this endpoint, about a group, or without one if group is empty.
// It returns nil if the answer is yes, and the reason otherwise.
func (e Endpoint) Probe(ctx context.Context, path, group string) error {
	if !slices.Contains(ProbePaths(), path) {
		return fmt.Errorf("%q is not one of %s", path, strings.Join(ProbePaths(), ", "))
	}
	if group != "" {
		path = strings.Replace(groupPath(path), "{group}", url.PathEscape(group), 1)
	}
	response, err := e.get(ctx, path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return checkProbeResponse(response)
}

// Read returns what the daemon at this endpoint answers to a GET of a path, at most limit bytes.
func (e Endpoint) Read(ctx context.Context, path string, limit int64) ([]byte, error) {
	response, err := e.get(ctx, path)
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

// get sends a GET to the daemon at this endpoint.
func (e Endpoint) get(ctx context.Context, path string) (*http.Response, error) {
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
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"localhost"+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, fmt.Errorf("no answer on http.listen %s: %w", e.Addr, err)
	}
	return response, nil
}

// checkProbeResponse returns nil if both the status and the body say yes. Another program may listen on that port, so the status
// alone is not enough.
func checkProbeResponse(response *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("the response was cut off: %w", err)
	}
	var a probeResponse
	switch err := json.Unmarshal(body, &a); {
	case err != nil || a.State == "":
		return fmt.Errorf("the server that responded with %s is not zkelectd", response.Status)
	case response.StatusCode == http.StatusOK && a.Answer:
		return nil
	case a.Reason == "":
		return errors.New(response.Status)
	}
	return errors.New(a.Reason)
}
