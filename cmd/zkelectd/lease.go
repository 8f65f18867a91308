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

// leaseLimit bounds the question: status is about the group, and must not wait for one host of it.
const leaseLimit = 500 * time.Millisecond

// withLease asks the leader what is left of its lease, which only it knows. One that does not answer is no failure. One
// that speaks TLS (https://) is not asked: a command does not know whom to trust there. The address comes from ZooKeeper,
// so it is asked only if the leader's own registration has it as well, and redirects are not followed.
func withLease(ctx context.Context, g status.Group) status.Group {
	host, port, err := net.SplitHostPort(g.API)
	if err != nil || g.APIHost == "" {
		return g
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		host = g.APIHost
	}
	ctx, cancel := context.WithTimeout(ctx, leaseLimit)
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
		return g // no answer of a probe
	}
	return g.WithLease(resp.Body)
}

// leaderClient returns a client for the leader on a host. It goes straight there, by no proxy.
func leaderClient(host string) *http.Client {
	dialer := &net.Dialer{Control: func(_, address string, _ syscall.RawConn) error { return checkLeaderAddress(address, host) }}
	return &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, DialContext: dialer.DialContext},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// checkLeaderAddress refuses an address that the leader on a host can't have: on the loopback of this host, where whatever
// trusts local users listens, the leader is only if it runs here; link-local ones have a cloud's metadata.
func checkLeaderAddress(address, host string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	ip := at.Addr().Unmap()
	here, err := os.Hostname()
	if err != nil || (ip.IsLoopback() && host != here) || ip.IsLinkLocalUnicast() || ip.IsMulticast() {
		return fmt.Errorf("%s is no address of %s", ip, host)
	}
	return nil
}
