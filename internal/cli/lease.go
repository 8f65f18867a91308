package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"zkelectd/internal/operator/status"
)

// leaseTimeout bounds the request to the leader: status is about the group, and must not wait for one host.
const leaseTimeout = time.Second

// withLease adds what only the leader knows, by asking it: the remaining time of the lease. ZooKeeper goes on naming a leader whose
// daemon hangs until its session ends, so no answer means that the lease is not confirmed, and no more than that.
func withLease(ctx context.Context, name string, g status.Group) status.Group {
	answer, err := askLeader(ctx, name, g)
	switch {
	case errors.Is(err, errNotAsked):
		return g
	case err != nil:
		return g.Unconfirmed(err.Error())
	}
	return g.WithLease(bytes.NewReader(answer))
}

// errNotAsked is the error of [askLeader] if this host cannot ask the leader, so that no answer means nothing.
var errNotAsked = errors.New("this host cannot ask the leader")

// askLeader returns the leader's answer to the probe /leader. A leader that serves TLS (https://) is not asked: a command does not
// know which CA to trust. The address comes from ZooKeeper, so it is used only if the leader's own registration has it as well, and
// redirects are not followed.
func askLeader(ctx context.Context, name string, g status.Group) ([]byte, error) {
	host, port, err := net.SplitHostPort(g.API)
	switch {
	case g.API == "":
		return nil, fmt.Errorf("%w: %s has no http.listen that other hosts can reach", errNotAsked, g.Leader)
	case strings.HasPrefix(g.API, "https://"):
		return nil, fmt.Errorf("%w: the HTTP API of %s uses TLS", errNotAsked, g.Leader)
	case err != nil || port == "0" || g.APIHost == "":
		return nil, fmt.Errorf("%w: the registration of %s does not have the address %s", errNotAsked, g.Leader, g.API)
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		host = g.APIHost
	}
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	// The name is not that of a daemon with a single group if hosts have given it another one.
	for _, path := range []string{"/v1/groups/" + url.PathEscape(name) + "/leader", "/leader"} {
		answer, code, err := getFromLeader(ctx, "http://"+net.JoinHostPort(host, port)+path, g.APIHost)
		var request *url.Error
		switch {
		case errors.Is(err, errNotAsked):
			return nil, err
		case ctx.Err() != nil:
			return nil, fmt.Errorf("no answer from %s at %s for %s", g.Leader, g.API, leaseTimeout)
		case errors.As(err, &request):
			return nil, fmt.Errorf("no answer from %s at %s: %w", g.Leader, g.API, request.Err)
		case code == http.StatusOK || code == http.StatusServiceUnavailable:
			return answer, err
		case code != http.StatusNotFound:
			return nil, fmt.Errorf("%s answers with status %d", g.API, code)
		}
	}
	return nil, fmt.Errorf("the server at %s does not know the group", g.API)
}

// maxLeaderAnswer bounds the answer of a leader, in bytes.
const maxLeaderAnswer = 1 << 16

func getFromLeader(ctx context.Context, target, host string) (body []byte, code int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", errNotAsked, err)
	}
	resp, err := leaderClient(host).Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxLeaderAnswer))
	return body, resp.StatusCode, err
}

// confirmLeader returns nil if the daemon that leads confirms that its lease is not over. own is set if the configuration of this host is its own.
func confirmLeader(ctx context.Context, own bool, g group, leader status.Group) error {
	h := g.host
	no := func(reason string) error {
		return exitError{statusNo, fmt.Errorf("the lease of %s is not confirmed: %s", printable(leader.Leader), printable(reason))}
	}
	confirms := func(answer []byte) error {
		if reason := leader.WithLease(bytes.NewReader(answer)).LeaseUnconfirmed; reason != "" {
			return no(reason)
		}
		return nil
	}
	if own && h.Config.HTTP.Listen != "" {
		e, err := endpointOf(h.Config)
		if err != nil {
			return exitError{statusError, err}
		}
		ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
		defer cancel()
		name, file := g.name, "/v1/groups/"+url.PathEscape(g.name)+"/leader"
		if h.Dir == "" {
			name, file = "", "/leader"
		}
		if err := e.Probe(ctx, "/leader", name); err != nil {
			return no(err.Error())
		}
		answer, err := e.Read(ctx, file, maxLeaderAnswer) // the daemon may be of another group, whose term differs
		if err != nil {
			return no(err.Error())
		}
		return confirms(answer)
	}
	answer, err := askLeader(ctx, g.name, leader)
	switch {
	case errors.Is(err, errNotAsked):
		return exitError{statusError, err}
	case err != nil:
		return no(err.Error())
	}
	return confirms(answer)
}

// leaderClient returns a client for the leader on a host. It connects directly, without a proxy.
func leaderClient(host string) *http.Client {
	dialer := &net.Dialer{Control: func(_, address string, _ syscall.RawConn) error { return checkLeaderAddress(address, host) }}
	return &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, DialContext: dialer.DialContext},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// checkLeaderAddress refuses an address that the leader on a host can't have. Loopback addresses have services that trust
// local users, so they are refused unless the leader runs on this host; link-local addresses have a cloud's metadata.
func checkLeaderAddress(address, host string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	ip := at.Addr().Unmap()
	here, err := os.Hostname()
	if err != nil || (ip.IsLoopback() && host != here) || ip.IsLinkLocalUnicast() || ip.IsMulticast() {
		return fmt.Errorf("%w: %s is not an address of %s", errNotAsked, ip, host)
	}
	return nil
}
