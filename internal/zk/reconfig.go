package zk

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// EnsemblePath is the znode with the dynamic configuration of the ensemble, which the servers write.
const EnsemblePath = "/zookeeper/config"

// EnsembleConfig is what the data of [EnsemblePath] say.
type EnsembleConfig struct {
	// Version grows with each reconfiguration.
	Version uint64
	// Servers are those that serve clients, as host:port, each once.
	Servers []string
}

// Limits of a configuration: a user who may write it must not make a client look up, and connect to, any number of
// addresses.
const (
	maxEnsembleConfig  = 64 << 10 // bytes
	maxEnsembleServers = 64
)

// ParseEnsembleConfig parses the data of [EnsemblePath]. It leaves out servers without an address for clients: those
// without a port for them, and those with garbage.
func ParseEnsembleConfig(data []byte) (c EnsembleConfig, err error) {
	if len(data) > maxEnsembleConfig {
		return c, fmt.Errorf("znode %s has %d bytes, more than %d", EnsemblePath, len(data), maxEnsembleConfig)
	}
	versioned := false
	for line := range bytes.Lines(data) {
		key, value, _ := strings.Cut(strings.TrimSpace(string(line)), "=")
		switch {
		case key == "version":
			if c.Version, err = strconv.ParseUint(value, 16, 64); err != nil {
				return EnsembleConfig{}, fmt.Errorf("znode %s has no valid version: %w", EnsemblePath, err)
			}
			versioned = true
		case strings.HasPrefix(key, "server."):
			if server := clientAddress(value); server != "" && !slices.Contains(c.Servers, server) {
				c.Servers = append(c.Servers, server)
			}
		}
		if len(c.Servers) > maxEnsembleServers {
			return EnsembleConfig{}, fmt.Errorf("znode %s names more than %d servers", EnsemblePath, maxEnsembleServers)
		}
	}
	if !versioned {
		return EnsembleConfig{}, fmt.Errorf("znode %s has no version", EnsemblePath)
	}
	return c, nil
}

// clientAddress returns the address for clients of a server, host:port, from its entry
// host:port:port[:role][|host:port:port...];[host:]port; empty if it has none. If the address for clients is every
// one of the server, as 0.0.0.0 or a port alone says, its host is the one that the other servers know.
func clientAddress(entry string) string {
	peers, client, _ := strings.Cut(entry, ";")
	host, port, err := net.SplitHostPort(client)
	if err != nil {
		host, port = "", client
	}
	if isWildcard(host) {
		host = firstHost(peers)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || isWildcard(host) || !isHost(host) {
		return ""
	}
	return net.JoinHostPort(host, port)
}

// firstHost returns the host of the first address of a server for other servers.
func firstHost(peers string) string {
	if in6, ok := strings.CutPrefix(peers, "["); ok {
		host, _, _ := strings.Cut(in6, "]")
		return host
	}
	host, _, _ := strings.Cut(peers, ":")
	return host
}

// isWildcard reports whether a host stands for every address of a server.
func isWildcard(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.Unmap().IsUnspecified()
}

// isHost reports whether host is an address or may be a name. A zone, which may be any text, is of one host only.
func isHost(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Zone() == ""
	}
	const maxName = 253
	return len(host) <= maxName && !strings.ContainsFunc(host, func(c rune) bool {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		return !letter && c != '.' && c != '-' && c != '_'
	})
}
