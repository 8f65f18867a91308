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

// Ask asks the daemon that listens on addr, as Serve takes it, one of the probes. A nil error is a yes; all else is a no,
// with the reason.
func Ask(ctx context.Context, addr, path string) error {
	if !slices.Contains(ProbePaths(), path) {
		return fmt.Errorf("%q is not one of %s", path, strings.Join(ProbePaths(), ", "))
	}
	network, target := "tcp", addr
	if file, isPath := strings.CutPrefix(addr, unixPrefix); isPath {
		network, target = "unix", file
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		// Whatever the URL says: addr may be a path, or all addresses of this host.
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, target)
		},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://zkelectd"+path, nil)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("nobody answers on http.listen %s: %w", addr, err)
	}
	defer response.Body.Close()
	return readAnswer(response)
}

// readAnswer is nil for a yes. Two things must say so, the status and the body: another program on that port is no daemon.
func readAnswer(response *http.Response) error {
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
