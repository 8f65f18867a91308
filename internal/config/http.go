package config

import (
	"regexp"
	"strings"
)

// HTTP configures the daemon's HTTP server.
type HTTP struct {
	Listen       string   `yaml:"listen" doc:"host:port or unix:/path (a socket of mode 0660) for probes, status, events, metrics and operator requests; none for none. Default: the socket api.sock in systemd's $RUNTIME_DIRECTORY, else none. See docs/http-api.md."`
	AllowedHosts []string `yaml:"allowed_hosts" reload:"yes" doc:"Additional names that the Host header of a request may have: names, *.domain, or * for any. See docs/http-api.md."`
	TokenFile    string   `yaml:"token_file" reload:"yes" doc:"A file with one line name:token for each client that may submit operator requests over HTTP, mode 0600 or 0400. A name without a slash is a systemd credential."`
	WebConfig    string   `yaml:"web_config" doc:"A web configuration file of prometheus/exporter-toolkit: TLS and client certificates. A name without a slash is a systemd credential."`
}

// ListenNone is the value of http.listen for no listener.
const ListenNone = "none"

// APISocket is the name of the socket in the unit's runtime directory that http.listen is by default.
const APISocket = "api.sock"

// Address returns where the daemon listens; empty if it does not. A command outside the unit does not know its runtime
// directory.
func (h HTTP) Address(getenv func(string) string) string {
	switch {
	case h.Listen == ListenNone:
		return ""
	case h.Listen != "":
		return h.Listen
	}
	socket := runtimeFile(getenv, APISocket)
	if socket == "" || checkListen(unixPrefix+socket) != nil {
		return ""
	}
	return unixPrefix + socket
}

// onSocket reports whether http.listen names a socket.
func (h HTTP) onSocket() bool { return strings.HasPrefix(h.Listen, unixPrefix) }

// Public returns the address for other hosts, with the prefix https:// if secure is true; "" if there is none.
func (h HTTP) Public(secure bool) string {
	switch {
	case h.Listen == "", h.Listen == ListenNone, h.onSocket():
		return ""
	case secure:
		return "https://" + h.Listen
	}
	return h.Listen
}

// unixPrefix is the prefix of an address that is the path of a socket.
const unixPrefix = "unix:"

func (h HTTP) check(report func(string, string, ...any)) {
	if err := checkListen(h.Listen); err != nil {
		report("http.listen", "%q %v", h.Listen, err)
	}
	for key, value := range map[string]string{"http.token_file": h.TokenFile, "http.web_config": h.WebConfig} {
		if value != "" && h.Public(false) == "" && !h.onSocket() {
			report(key, "has no effect: set http.listen as well")
		}
	}
	h.checkHosts(report)
	if h.WebConfig != "" && h.onSocket() {
		report("http.web_config", "needs host:port in http.listen: access to a unix socket is controlled by the "+
			"permissions of its file")
	}
}

// hostPattern matches a host name, or *. and a domain.
var hostPattern = regexp.MustCompile(`^(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?$`)

func (h HTTP) checkHosts(report func(string, string, ...any)) {
	if len(h.AllowedHosts) > 0 && h.Public(false) == "" && !h.onSocket() {
		report("http.allowed_hosts", "has no effect: set http.listen as well")
	}
	for _, name := range h.AllowedHosts {
		if name != "*" && !hostPattern.MatchString(name) {
			report("http.allowed_hosts", "%q is not a host name (without a port), *.domain or *", name)
		}
	}
}
