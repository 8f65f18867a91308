package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"syscall"
	"time"

	"zkelectd/internal/status"
)

// leaseTimeout bounds the request to the leader: status is about the group, and must not wait for one host.
const leaseTimeout = 500 * time.Millisecond

// withLease adds the remaining time of the lease, which only the leader knows, by asking it. No answer is not an error. A
// leader that serves TLS (https://) is not asked: a command does not know which CA to trust. The address comes from
// ZooKeeper, so it is used only if the leader's own registration has it as well, and redirects are not followed.
func withLease(ctx context.Context, g status.Group) status.Group {
	host, port, err := net.SplitHostPort(g.API)
	if err != nil || g.APIHost == "" {
		return g
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		host = g.APIHost
	}
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/leader", nil)
	if err != nil {
		return g
	}
	resp, err := leaderClient(g.APIHost).Do(req)
	if err != nil {
		return g
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusServiceUnavailable {
		return g // not the answer of a probe
	}
	return g.WithLease(resp.Body)
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
		return fmt.Errorf("%s is not an address of %s", ip, host)
	}
	return nil
}
