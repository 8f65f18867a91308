package config

import (
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// kind is the type of a key's value.
type kind string

const (
	text     kind = "string"
	integer  kind = "integer"
	boolean  kind = "boolean"
	duration kind = "duration"
	list     kind = "list of strings"
	texts    kind = "map of strings"
	integers kind = "map of integers"
	choices  kind = "list of {when, use}"
)

// Key describes a setting: its default, its meaning, and whether a reload applies it.
type Key struct {
	Name    string
	Kind    kind
	Default any
	Reload  bool
	Doc     string
}

// Env returns the environment variable that sets the key.
func (k Key) Env() string { return envPrefix + strings.ToUpper(strings.ReplaceAll(k.Name, ".", "_")) }

const envPrefix = "ZKELECTD_"

// Keys returns all settings, in the order of the reference.
func Keys() []Key {
	none := []string{}
	return []Key{
		{"node.id", text, hostName(), false, "The name of this daemon, unique in the group. Default: the host name."},
		{"node.site", text, "default", true, "The site of this host."},
		{"node.priority", integer, 100, true, "Ranks the nodes within a site; higher is better."},
		{"node.labels", texts, map[string]string{}, true, "Arbitrary labels, shown with the node; policies can use them."},
		{"node.observer", boolean, false, true, "With true this daemon is an observer: it never leads, but it can be the elector."},
		{"zookeeper.servers", list, []string{"127.0.0.1:2181"}, false, "The servers of the ensemble, as host:port."},
		{"zookeeper.root", text, "/cluster", false, "The group's root znode, created if it does not exist. Daemons with the same root elect one leader."},
		{"zookeeper.session_timeout", duration, 6 * time.Second, false, "The session timeout to request; the server limits it to between 2 and 20 of its ticks. The lease is 45% of the granted timeout."},
		{"zookeeper.min_session_timeout", duration, time.Duration(0), false, "The smallest session timeout that any server of the ensemble may grant; the lease is computed from it. Set it if the servers have different values of maxSessionTimeout. With 0s zkelectd assumes that every server grants at least what the first one granted. See docs/protocol.md."},
		{"zookeeper.connect_timeout", duration, time.Duration(0), false, "How long to try to connect for the first time before giving up. With 0s the daemon tries forever, and a command for 10s."},
		{"zookeeper.session_file", text, "", false, "The file (mode 0600) in which the daemon keeps its session's id and password and its pending hooks. If guard and daemon were killed together, 'zkelectd release' and the next start read it to clean up. Default: the file session in systemd's $RUNTIME_DIRECTORY; without that directory, none."},
		{"zookeeper.auth.file", text, "", true, "A file with lines user:password for ZooKeeper's digest scheme, mode 0600 or 0400, the same on all hosts. The session authenticates with each line, and each of these users has all rights to the znodes that are created; use several lines to change the password. Read again at each reload. A name without a slash is a systemd credential (LoadCredential=). See docs/security.md."},
		{"zookeeper.acl", text, "open", true, "Who can access the znodes that are created: private (only the users of zookeeper.auth.file), readable (everyone can read) or open (everyone can do everything). With open, one setAcl by anyone who can reach a ZooKeeper server locks out the whole group: use open for demos and tests only. See docs/security.md."},
		{"zookeeper.tls.enabled", boolean, false, false, "Use TLS (1.2 or later) to connect to the servers; zookeeper.servers must then name their secureClientPort."},
		{"zookeeper.tls.ca", text, "", false, "A PEM file with the CAs to trust. Default: those of the system. As with zookeeper.auth.file, a name without a slash is a systemd credential."},
		{"zookeeper.tls.cert", text, "", false, "A PEM file with this host's certificate, for servers that require one; needs zookeeper.tls.key."},
		{"zookeeper.tls.key", text, "", false, "The PEM file with the private key of zookeeper.tls.cert; other users must not be able to read it."},
		{"zookeeper.tls.server_name", text, "", false, "The name that the servers' certificates must have. Default: the host in zookeeper.servers."},
		{"election.failback.mode", text, cluster.FailbackImmediate, true, "Whether a better node replaces a healthy leader: immediate (at once), delayed (after election.failback.delay) or manual (only 'zkelectd reelect' or 'zkelectd move' replaces it). Part of the policy, which applies to the whole group."},
		{"election.failback.delay", duration, 30 * time.Second, true, "With the mode delayed: how long the better node must have been eligible without interruption."},
		{"election.max_preemptions", integer, 6, true, "How often policy may replace a healthy leader (a preemption) within election.preemption_window; 0 for no limit. Failovers and operator requests are not limited. Part of the policy."},
		{"election.preemption_window", duration, time.Hour, true, "The window in which preemptions are counted."},
		{"election.takeover_timeout", duration, 30 * time.Second, false, "How long a takeover may take before the candidate is excluded and the next one is elected."},
		{"election.exclusion", duration, time.Minute, false, "How long a node is excluded after its first strike; each further strike doubles the time, up to an hour."},
		{"election.strike_reset_after", duration, 5 * time.Minute, false, "The strikes of a leader are cleared once it has been READY for this long."},
		{"election.trust_session_end", boolean, false, false, "Whether a takeover may rely on the end of the last leader's session as proof that its work has ended. With false the new leader starts its work at once only if leadership was released; if a leader crashes, its guard releases. After the loss of the leader's host nothing is released, and the new leader first waits until every lease is over (0.61 of the session timeout). With true, anyone who can reach the ZooKeeper servers can cause two leaders to work at the same time. See docs/safety.md."},
		{"policy.revision", integer, 0, true, "A number that must increase with each change of the policy; with 0 zkelectd counts the revisions itself."},
		{"policy.type", text, "priority", true, "How nodes are ranked: one of " + strings.Join(policy.Types(), ", ") + ". See docs/policies.md."},
		{"policy.rank", list, none, true, "A list of rankers to use instead of policy.type. The first ranker that distinguishes two members decides between them. Each is one of " + strings.Join(policy.Rankers(), ", ") + " or expr:EXPRESSION."},
		{"policy.sites", integers, map[string]int{}, true, "The priority of each site, higher is better; a site that is not listed has 0."},
		{"policy.strategies", choices, []cluster.Strategy{}, true, "A list of {when: CONDITION, use: TYPE}. The first strategy whose condition is true ranks the members; a strategy without when always applies. If no condition is true, policy.type ranks them."},
		{"policy.expr", text, "", true, "The expression of the type expr. If it returns a number, higher is better; if it returns a boolean, true is better."},
		{"policy.hysteresis", integer, 20, true, "By how many percent a latency or score must be better than the leader's."},
		{"policy.exec.command", list, none, true, "The program of the type exec: it reads the snapshot as JSON on its standard input and prints the ranking as JSON. Each host uses the program in its own configuration, never one from ZooKeeper."},
		{"policy.exec.timeout", duration, 2 * time.Second, true, "How long an election waits for the program."},
		{"policy.exec.fallback", text, policy.Types()[0], true, "The type that ranks if the program fails."},
		{"policy.filter", list, none, true, "Expressions about a member; it can lead only if all of them are true."},
		{"policy.min_priority", integer, 0, true, "Nodes with a lower node.priority never lead; 0 for no limit."},
		{"policy.require_labels", texts, map[string]string{}, true, "Nodes without these labels never lead."},
		{"policy.exclude_nodes", list, none, true, "The ids of nodes that never lead."},
		{"policy.disabled_sites", list, none, true, "Sites whose nodes never lead."},
		{"health.exec", list, none, false, "The host is healthy while this command exits with 0; an unhealthy host is not elected. Set at most one of exec, http and tcp; without any the host always counts as healthy."},
		{"health.http", text, "", false, "The host is healthy while this URL answers 2xx."},
		{"health.tcp", text, "", false, "The host is healthy while this host:port accepts connections."},
		{"health.interval", duration, 5 * time.Second, false, "The time between two checks."},
		{"health.timeout", duration, 2 * time.Second, false, "A check that takes longer has failed."},
		{"health.rise", integer, 2, false, "The host is healthy again after this many successful checks in a row."},
		{"health.fall", integer, 3, false, "The host is unhealthy after this many failed checks in a row. After a start, the first check alone decides."},
		{"score.exec", list, none, false, "The score is the first word of this command's output; with the type score, higher is better. Set at most one of exec and http."},
		{"score.http", text, "", false, "The score is the first word of this URL's response."},
		{"score.interval", duration, 10 * time.Second, false, "The time between two measurements; the last few are averaged."},
		{"score.timeout", duration, 2 * time.Second, false, "A measurement that takes longer has failed."},
		{"child.command", list, none, false, "The leader-only child. If empty, the daemon takes part in elections only."},
		{"child.unit", text, "", false, "A systemd service, such as app.service, that runs on the leader only. Use it instead of child.command. See docs/systemd.md."},
		{"child.env", texts, map[string]string{}, false, "Additional environment variables of the child; not for child.unit, which has its own."},
		{"child.dir", text, "", false, "The child's working directory. Default: the daemon's."},
		{"child.ready.exec", list, none, false, "The child is ready when this command exits with 0. Set at most one of exec, http, tcp, notify and delay; without any the child is ready once it has started."},
		{"child.ready.http", text, "", false, "The child is ready when this URL answers 2xx."},
		{"child.ready.tcp", text, "", false, "The child is ready when this host:port accepts connections."},
		{"child.ready.notify", boolean, false, false, "The child is ready when it sends READY=1 to $NOTIFY_SOCKET (sd_notify)."},
		{"child.ready.delay", duration, time.Duration(0), false, "The child is ready after this time."},
		{"child.ready.interval", duration, 100 * time.Millisecond, false, "The time between two checks."},
		{"child.ready.timeout", duration, 20 * time.Second, false, "The start of a child that is not ready after this time has failed."},
		{"child.live.exec", list, none, false, "The child is alive while this command exits with 0. Set at most one of exec, http and tcp; without any it is alive until it exits."},
		{"child.live.http", text, "", false, "The child is alive while this URL answers 2xx."},
		{"child.live.tcp", text, "", false, "The child is alive while this host:port accepts connections."},
		{"child.live.interval", duration, 5 * time.Second, false, "The time between two checks, once the child is ready."},
		{"child.live.timeout", duration, 2 * time.Second, false, "A check that takes longer has failed."},
		{"child.live.fall", integer, 3, false, "After this many failed checks in a row the leader gives up leadership, with a strike."},
		{"child.stop_signal", text, "TERM", false, "The signal that asks the child to stop."},
		{"child.stop_timeout", duration, time.Duration(0), false, "How long the child may take to stop after stop_signal. Then it is killed with its whole process group, or earlier if the lease ends. With 0s the timeout is as long as the lease allows (5/6 of the lease), but at most 10s."},
		{"child.containment", text, "auto", false, "What keeps all processes of the child together: cgroup (a control group of version 2, which must be delegated), pidns (a PID namespace, in which the child sees other pids; needs root or user namespaces), keeper (a subreaper), or auto: cgroup if possible, else keeper. See docs/safety.md."},
		{"child.restart.max", integer, 3, false, "How often within the window a child that exits by itself is restarted on the same host. If it exits once more, the leader gives up leadership."},
		{"child.restart.window", duration, time.Minute, false, "The window in which exits are counted."},
		{"child.restart.backoff", duration, 500 * time.Millisecond, false, "The pause before each restart."},
		{"guard.realtime", boolean, false, false, "Give guard and keeper the lowest real-time priority, so that no ordinary process of a busy host delays a kill. Needs LimitRTPRIO=1 or CAP_SYS_NICE; without that permission they run without the priority, and log that. See docs/safety.md."},
		{"hooks.pre_start", list, none, false, "A command that runs before the child starts. If it fails, the takeover fails."},
		{"hooks.post_stop", list, none, false, "A command that runs whenever pre_start has run and the child is dead, before leadership is released. The daemon runs it; if the daemon died, the guard does; if both died, 'zkelectd release' or the next start on this host does (this needs zookeeper.session_file). It may only undo what pre_start did. See docs/safety.md."},
		{"hooks.on_change", list, none, false, "A command that runs for each change of this daemon's role, in order and one at a time, with JSON on its standard input. If the daemon dies as the leader, the process that runs post_stop also runs this command, with the state standby."},
		{"hooks.timeout", duration, 10 * time.Second, false, "A hook that runs for longer is killed."},
		{"http.listen", text, "", false, "host:port or unix:/path (a socket of mode 0660) for probes, status, events, metrics and operator requests; empty for none. See docs/http-api.md."},
		{"http.allowed_hosts", list, none, true, "Additional names that the Host header of a request may have: names, *.domain, or * for any. IP addresses, localhost, the host's name, node.id and the host in http.listen are always allowed; on a unix socket every name is allowed. See docs/http-api.md."},
		{"http.token_file", text, "", true, "A file with one line name:token for each client that may submit operator requests over HTTP, mode 0600 or 0400. Read again at each reload. As with zookeeper.auth.file, a name without a slash is a systemd credential."},
		{"http.web_config", text, "", false, "A web configuration file of prometheus/exporter-toolkit: TLS, client certificates, passwords. A name without a slash is a systemd credential."},
		{"log.level", text, "info", true, "debug, info, warn or error."},
		{"log.format", text, "text", false, "text or json."},
		{"reload.watch", boolean, false, false, "Reload the configuration, as SIGHUP does, whenever its file, zookeeper.auth.file or http.token_file changes."},
	}
}

func keyByName() map[string]Key {
	m := make(map[string]Key)
	for _, k := range Keys() {
		m[k.Name] = k
	}
	return m
}
