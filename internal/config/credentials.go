package config

import (
	"maps"
	"slices"
	"strings"
)

// zookeeperSection is the prefix of the settings of the connection.
const zookeeperSection = "zookeeper."

// serversKey is the setting with the servers.
const serversKey = zookeeperSection + "servers"

// credentialKeys are the settings with which a session authenticates and trusts its servers.
var credentialKeys = []string{
	"zookeeper.auth.file", "zookeeper.tls.ca", "zookeeper.tls.cert", "zookeeper.tls.key", "zookeeper.tls.server_name",
}

// layers are the settings by where they were given: in the file, in the environment, by flags.
type layers struct {
	base, env, flags map[string]found
}

// readLayers reads environment and flags. base are the settings of the file.
func readLayers(src Sources, base map[string]found, errs *Errors) layers {
	l := layers{base: maps.Clone(base), env: make(map[string]found), flags: make(map[string]found)}
	if l.base == nil {
		l.base = make(map[string]found)
	}
	readEnv(src.Env, l.env, errs)
	readFlags(src.Flags, l.flags, errs)
	return l
}

// merged returns the settings in force.
func (l layers) merged() map[string]found {
	all := maps.Clone(l.base)
	maps.Copy(all, l.env)
	maps.Copy(all, l.flags)
	return all
}

// refuseStrangers reports credentials that would be presented to servers of another source: those that a source names together with
// servers go to these servers only, and a connection that is complete by itself takes none from the environment.
func (l layers) refuseStrangers(src Sources, errs *Errors) {
	all := l.merged()
	servers, own := all[serversKey], l.base[serversKey]
	complete := src.Complete && own.source != "" && servers.source == own.source
	for _, key := range credentialKeys {
		f := all[key]
		switch _, inEnv := l.env[key]; {
		case inEnv && complete:
			errs.add(f.source, key, "does not belong to zookeeper.servers (%s): unset it, or write the setting there", own.source)
		case !isSet(f):
		case inEnv && !within(servers, l.env[serversKey]):
			errs.add(f.source, key, "belongs to the servers in %s, but %s names others: leave out %[2]s, or unset %[1]s if the credentials are for the other servers",
				l.env[serversKey].source, servers.source)
		case !inEnv && !within(servers, own):
			errs.add(f.source, key, "belongs to zookeeper.servers (%s), but %s names others: use only one of them, or a file with these servers",
				own.source, servers.source)
		}
	}
}

// isSet reports whether a credential is given, and not empty.
func isSet(f found) bool { return f.value != nil && f.value != "" }

// within reports whether all servers are among those that a source names, or whether it names none.
func within(servers, named found) bool {
	all, _ := named.value.([]string)
	some, _ := servers.value.([]string)
	for _, one := range some {
		if named.value != nil && !slices.ContainsFunc(all, func(s string) bool { return withPort(s) == withPort(one) }) {
			return false
		}
	}
	return true
}

// withPort returns a server with its port.
func withPort(server string) string {
	if server != "" && !strings.Contains(server, ":") {
		return server + ":2181"
	}
	return server
}
