package main

import (
	"context"
	"net"
	"net/http"
	"time"

	"zkelectd/internal/status"
)

// leaseLimit bounds the question: status is about the group, and must not wait for one host of it.
const leaseLimit = 500 * time.Millisecond

// withLease asks the leader what is left of its lease, which only it knows. One that does not answer is no failure. One
// that speaks TLS (https://) is not asked: a command does not know whom to trust there.
func withLease(ctx context.Context, g status.Group) status.Group {
	host, port, err := net.SplitHostPort(g.API)
	if err != nil {
		return g
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		for _, m := range g.Members {
			if m.Node == g.Leader {
				host = m.Host
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, leaseLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/leader", nil)
	if err != nil {
		return g
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return g
	}
	defer resp.Body.Close()
	return g.Leased(resp.Body)
}
