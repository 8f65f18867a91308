package web

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
)

// Hosts are the names that requests may have in their Host header. They protect against DNS rebinding: if an attacker makes a
// page's host name resolve to this host, a browser treats the daemon as the page's own origin, and only the Host header shows
// the difference. IP addresses are always allowed, because a browser sends one only if it was asked for that address. So
// are requests without a Host header, which browsers do not send.
type Hosts struct {
	own     []string
	allowed atomic.Pointer[[]string]
}

// NewHosts returns the names that are always allowed: those of the loopback, the host name, the node id, and the host in listen.
func NewHosts(listen, node string) *Hosts {
	h := &Hosts{own: []string{"localhost", "*.localhost", strings.ToLower(node)}}
	if name, err := os.Hostname(); err == nil {
		short, _, _ := strings.Cut(name, ".")
		h.own = append(h.own, strings.ToLower(name), strings.ToLower(short))
	}
	if host, _, err := net.SplitHostPort(listen); err == nil && host != "" {
		h.own = append(h.own, strings.ToLower(host))
	}
	h.SetAllowed(nil)
	return h
}

// SetAllowed replaces the additional names, from http.allowed_hosts. *.example.com allows every name below example.com, and *
// every name.
func (h *Hosts) SetAllowed(allowed []string) {
	lower := make([]string, len(allowed))
	for i, name := range allowed {
		lower[i] = hostName(name)
	}
	h.allowed.Store(&lower)
}

// hostName returns a name in the form in which names are compared.
func hostName(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// Check returns an error with a hint if requests may not have this Host header.
func (h *Hosts) Check(header string) error {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = header
	}
	if host == "" {
		return nil
	}
	if _, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")); err == nil {
		return nil
	}
	name := hostName(host)
	if slices.ContainsFunc(slices.Concat(*h.allowed.Load(), h.own), func(pattern string) bool { return matchesHost(pattern, name) }) {
		return nil
	}
	return fmt.Errorf("the Host header is %q, which is not a name of this daemon: if it is, add it to http.allowed_hosts", sanitizeName(cmp.Or(name, host)))
}

func matchesHost(pattern, name string) bool {
	if below, ok := strings.CutPrefix(pattern, "*"); ok {
		return strings.HasSuffix(name, below)
	}
	return pattern == name
}
