package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
)

// Ask asks the daemon that listens here one of the probes. A nil error is a yes; all else is a no, with the reason.
func (l Listener) Ask(ctx context.Context, path string) error {
	if !slices.Contains(ProbePaths(), path) {
		return fmt.Errorf("%q is not one of %s", path, strings.Join(ProbePaths(), ", "))
	}
	network, target := "tcp", l.Addr
	if file, isPath := strings.CutPrefix(l.Addr, unixPrefix); isPath {
		network, target = "unix", file
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		// Whatever the URL says: the address may be a path, or all addresses of this host.
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, target)
		},
	}
	scheme := "http://"
	if l.Web.Secure() {
		var err error
		if transport.TLSClientConfig, err = l.Web.pinned(); err != nil {
			return err
		}
		scheme = "https://"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"localhost"+path, nil)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("nobody answers on http.listen %s: %w", l.Addr, err)
	}
	defer response.Body.Close()
	return readAnswer(response)
}

// readAnswer is nil for a yes. Two things must say so, the status and the body: another program on that port is no daemon.
func readAnswer(response *http.Response) error {
	if response.StatusCode == http.StatusUnauthorized {
		return errors.New("http.web_config wants a password (basic_auth_users), which a probe has none of")
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("the answer broke off: %w", err)
	}
	var a answer
	switch err := json.Unmarshal(body, &a); {
	case err != nil || a.State == "":
		return fmt.Errorf("what answers with %s is no zkelectd", response.Status)
	case response.StatusCode == http.StatusOK && a.Answer:
		return nil
	case a.Why == "":
		return errors.New(response.Status)
	}
	return errors.New(a.Why)
}
