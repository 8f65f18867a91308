package httpapi

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

// Hosts are the names that requests may have in their Host header. A page whose name was made to lead to this host (DNS
// rebinding) is of the daemon's own origin for a browser; what gives it away is the name. An IP address is no such name:
// a browser that sends one has asked that very address, so any is let in, and so is a request without a Host, which no
// browser sends.
type Hosts struct {
	own     []string
	allowed atomic.Pointer[[]string]
}

// NewHosts returns the names that a daemon has by itself: those of the loopback, the host's, its node id, and that in
// http.listen.
func NewHosts(listen, node string) *Hosts {
	h := &Hosts{own: []string{"localhost", "*.localhost", strings.ToLower(node)}}
	if name, err := os.Hostname(); err == nil {
		short, _, _ := strings.Cut(name, ".")
		h.own = append(h.own, strings.ToLower(name), strings.ToLower(short))
	}
	if host, _, err := net.SplitHostPort(listen); err == nil && host != "" {
		h.own = append(h.own, strings.ToLower(host))
	}
	h.Use(nil)
	return h
}

// Use has these names of http.allowed_hosts let in as well, and no others. *.example.com is any name below example.com, * any.
func (h *Hosts) Use(allowed []string) {
	lower := make([]string, len(allowed))
	for i, name := range allowed {
		lower[i] = hostName(name)
	}
	h.allowed.Store(&lower)
}

// hostName returns a name as it is compared.
func hostName(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// Check returns an error that says what to set if requests may not have this Host header.
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
	return fmt.Errorf("the Host header is %q, which is no name of this daemon: if it is one, add it to http.allowed_hosts", shortened(cmp.Or(name, host)))
}

func matchesHost(pattern, name string) bool {
	if below, ok := strings.CutPrefix(pattern, "*"); ok {
		return strings.HasSuffix(name, below)
	}
	return pattern == name
}
