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

// Key is one setting: the only place that knows its default, its meaning, and whether a reload takes it over.
type Key struct {
	Name    string
	Kind    kind
	Default any
	Reload  bool
	Doc     string
}

// Env is the environment variable that sets the key.
func (k Key) Env() string { return envPrefix + strings.ToUpper(strings.ReplaceAll(k.Name, ".", "_")) }

const envPrefix = "ZKELECTD_"

// Keys lists every setting, in the order of the reference.
func Keys() []Key {
	none := []string{}
	return []Key{
		{"node.id", text, hostName(), false, "This daemon's name, unique in the group. Default: the host name."},
		{"node.site", text, "default", true, "The site that the host belongs to."},
		{"node.priority", integer, 100, true, "Ranks the nodes of a site; higher leads first."},
		{"node.labels", texts, map[string]string{}, true, "Free labels, shown with the node."},
		{"node.observer", boolean, false, true, "This daemon never leads: an observer, which still takes part as elector."},
		{"zookeeper.servers", list, []string{"127.0.0.1:2181"}, false, "The ensemble, as host:port."},
		{"zookeeper.root", text, "/cluster", false, "The group's root znode; created if it does not exist. Daemons with the same root elect one leader."},
		{"zookeeper.session_timeout", duration, 6 * time.Second, false, "The session timeout to ask for; the server clamps it to 2 to 20 of its ticks. The lease is 45 % of what it grants."},
		{"zookeeper.min_session_timeout", duration, time.Duration(0), false, "The smallest session timeout that any server of the ensemble may grant: the lease is computed from it. Set it where the servers have different maxSessionTimeout. With 0s zkelectd assumes that no server grants less than the first one did. See docs/protocol.md."},
		{"zookeeper.connect_timeout", duration, time.Duration(0), false, "How long to try for a first connection before giving up; with 0s the daemon tries for ever, and a command for 10s."},
		{"zookeeper.session_file", text, "", false, "Where the session's id and password are kept (mode 0600), with the hooks that are owed, for 'zkelectd release' and for the next start after guard and daemon were killed together. Default: session in systemd's $RUNTIME_DIRECTORY; without that, nowhere."},
		{"zookeeper.auth.file", text, "", true, "A file with lines user:password for ZooKeeper's digest scheme, mode 0600 or 0400; all members share it. Each line is presented, and has all rights to what is created; several are for changing the password. Read again at each reload. A name without a slash is a systemd credential (LoadCredential=). See docs/security.md."},
		{"zookeeper.acl", text, "open", true, "Who may use the znodes that are created: private (the users of zookeeper.auth.file alone), readable (the same; others read) or open (everybody). With open, one setAcl by anybody who reaches a ZooKeeper server locks the whole group out: it is for demos and tests. See docs/security.md."},
		{"zookeeper.tls.enabled", boolean, false, false, "Speak TLS (1.2 or later) to the servers; zookeeper.servers then names their secureClientPort."},
		{"zookeeper.tls.ca", text, "", false, "A PEM file with the CAs to trust. Default: the system's. Like zookeeper.auth.file, a name without a slash is a systemd credential."},
		{"zookeeper.tls.cert", text, "", false, "A PEM file with this host's certificate, for servers that ask for one; needs zookeeper.tls.key."},
		{"zookeeper.tls.key", text, "", false, "The PEM file with its key; not to be read by everybody."},
		{"zookeeper.tls.server_name", text, "", false, "The name that the servers' certificates must be for. Default: the host in zookeeper.servers."},
		{"election.failback.mode", text, cluster.FailbackImmediate, true, "Whether a better node replaces a healthy leader: immediate, delayed or manual (only 'zkelectd reelect' or 'move' does). Part of the policy that holds for the whole group."},
		{"election.failback.delay", duration, 30 * time.Second, true, "For delayed: how long the better node must have been eligible without a break."},
		{"election.max_preemptions", integer, 6, true, "How often policy may replace a healthy leader (a preemption) within election.preemption_window; 0 for no limit. Failovers and operator requests are not limited. Part of the policy."},
		{"election.preemption_window", duration, time.Hour, true, "The window in which preemptions are counted."},
		{"election.takeover_timeout", duration, 30 * time.Second, false, "How long a takeover may last before the candidate is excluded and the next one elected."},
		{"election.exclusion", duration, time.Minute, false, "How long a node is excluded after a first strike; doubles with each further one, up to an hour."},
		{"election.strike_reset_after", duration, 5 * time.Minute, false, "The strikes of a leader are cleared once it has been READY for this long."},
		{"election.trust_session_end", boolean, false, false, "Whether this daemon, when it takes over, takes the end of the last leader's session for the end of its work. With false it starts its work at once only after a release, which the guard of a leader that has crashed writes too; after the loss of the leader's host it first waits until every lease is over (0.61 of the session timeout). With true a stranger who reaches the ZooKeeper servers can have two leaders at work. See docs/safety.md."},
		{"policy.revision", integer, 0, true, "A number that must rise with each change of the policy by a reload; 0 lets zkelectd count."},
		{"policy.type", text, "priority", true, "How nodes are ranked: one of " + strings.Join(policy.Types(), ", ") + ". See docs/policies.md."},
		{"policy.rank", list, none, true, "The rankers spelled out, the first decides; instead of policy.type. Of " + strings.Join(policy.Rankers(), ", ") + ", and expr:EXPRESSION."},
		{"policy.sites", integers, map[string]int{}, true, "Priority of each site, higher first; a site that is not listed has 0."},
		{"policy.strategies", choices, []cluster.Strategy{}, true, "A list of {when: CONDITION, use: TYPE}: the first whose condition holds ranks; without when it always holds; if none does, policy.type."},
		{"policy.expr", text, "", true, "The expression that the type expr ranks by: a number, or true before false."},
		{"policy.hysteresis", integer, 20, true, "By how many per cent a latency or score must be better than the leader's."},
		{"policy.exec.command", list, none, true, "The program of the type exec: the snapshot as JSON on its standard input, the ranking as JSON on its output. Each host's own; never taken from ZooKeeper."},
		{"policy.exec.timeout", duration, 2 * time.Second, true, "How long an election waits for it."},
		{"policy.exec.fallback", text, policy.Types()[0], true, "The type that ranks when it fails."},
		{"policy.filter", list, none, true, "Expressions about a member that must all hold for it to lead."},
		{"policy.min_priority", integer, 0, true, "Nodes with a lower node.priority never lead; 0 for no bound."},
		{"policy.require_labels", texts, map[string]string{}, true, "Nodes without these labels never lead."},
		{"policy.exclude_nodes", list, none, true, "The ids of nodes that never lead."},
		{"policy.disabled_sites", list, none, true, "Sites whose nodes do not lead."},
		{"health.exec", list, none, false, "The host may lead while this command exits with 0. At most one of exec, http and tcp is set; with none the host is healthy."},
		{"health.http", text, "", false, "Healthy when this URL answers 2xx."},
		{"health.tcp", text, "", false, "Healthy when this host:port accepts connections."},
		{"health.interval", duration, 5 * time.Second, false, "The time between two tries."},
		{"health.timeout", duration, 2 * time.Second, false, "A try that takes longer has failed."},
		{"health.rise", integer, 2, false, "Healthy again after so many tries in a row."},
		{"health.fall", integer, 3, false, "Unhealthy after so many failed tries in a row. The very first try decides alone."},
		{"score.exec", list, none, false, "The number that the type score ranks by is the first word of this command's output, higher first. At most one of exec and http is set."},
		{"score.http", text, "", false, "Or the first word of what this URL answers."},
		{"score.interval", duration, 10 * time.Second, false, "The time between two tries; the last few are averaged."},
		{"score.timeout", duration, 2 * time.Second, false, "A try that takes longer has failed."},
		{"child.command", list, none, false, "The leader-only child. Empty: the daemon only elects."},
		{"child.unit", text, "", false, "A systemd service, as in app.service, that is started on the leader and nowhere else, instead of child.command. See docs/systemd.md."},
		{"child.env", texts, map[string]string{}, false, "Further environment variables of the child; not with child.unit, which has its own."},
		{"child.dir", text, "", false, "The child's working directory. Default: the daemon's."},
		{"child.ready.exec", list, none, false, "Ready when this command exits with 0. At most one of exec, http, tcp, notify and delay is set; with none the child is ready once started."},
		{"child.ready.http", text, "", false, "Ready when this URL answers 2xx."},
		{"child.ready.tcp", text, "", false, "Ready when this host:port accepts connections."},
		{"child.ready.notify", boolean, false, false, "Ready when the child sends READY=1 to $NOTIFY_SOCKET (sd_notify)."},
		{"child.ready.delay", duration, time.Duration(0), false, "Ready after this time."},
		{"child.ready.interval", duration, 100 * time.Millisecond, false, "The time between two tries."},
		{"child.ready.timeout", duration, 20 * time.Second, false, "A child that is not ready by then has failed."},
		{"child.live.exec", list, none, false, "The child is alive while this command exits with 0. At most one of exec, http and tcp is set; with none only its exit counts."},
		{"child.live.http", text, "", false, "Alive when this URL answers 2xx."},
		{"child.live.tcp", text, "", false, "Alive when this host:port accepts connections."},
		{"child.live.interval", duration, 5 * time.Second, false, "The time between two tries, from when the child is ready."},
		{"child.live.timeout", duration, 2 * time.Second, false, "A try that takes longer has failed."},
		{"child.live.fall", integer, 3, false, "After so many failed tries in a row leadership is given up, with a strike."},
		{"child.stop_signal", text, "TERM", false, "The signal that asks the child to stop."},
		{"child.stop_timeout", duration, time.Duration(0), false, "The child is killed, with its whole process group, this long after stop_signal, or when the lease ends if that is sooner. With 0s it is as long as the lease allows (5/6 of it), but at most 10s."},
		{"child.containment", text, "auto", false, "What holds all processes of the child together: cgroup (a control group of version 2, which must be delegated), pidns (a PID namespace; the child sees other pids; needs root or user namespaces), keeper (a subreaper), or auto: cgroup where it can be, else keeper. See docs/safety.md."},
		{"child.restart.max", integer, 3, false, "How often within the window a child that exits by itself is started again in place; then leadership is given up."},
		{"child.restart.window", duration, time.Minute, false, "The window in which exits are counted."},
		{"child.restart.backoff", duration, 500 * time.Millisecond, false, "The pause before each restart."},
		{"guard.realtime", boolean, false, false, "Give guard and keeper the lowest real-time priority, so that no ordinary process of a busy host delays a kill. Needs LimitRTPRIO=1 or CAP_SYS_NICE; where it is not permitted, the log says so and they run without. See docs/safety.md."},
		{"hooks.pre_start", list, none, false, "Run before the child starts; if it fails, so does the takeover."},
		{"hooks.post_stop", list, none, false, "Run once pre_start has run and the child is dead, whatever has ended it, before leadership is released: by the guard if the daemon has died, by the next start on this host or 'zkelectd release' if both have (which needs zookeeper.session_file). It may only undo what pre_start did. See docs/safety.md."},
		{"hooks.on_change", list, none, false, "Run for each change of this daemon's role, with JSON on standard input; in order, one at a time. If the daemon dies as the leader, whoever runs post_stop runs it as well, with the state standby."},
		{"hooks.timeout", duration, 10 * time.Second, false, "A hook is killed after this time."},
		{"http.listen", text, "", false, "host:port or unix:/path (a socket of mode 0660) for probes, status, events, metrics and operator requests; empty for none. See docs/http-api.md."},
		{"http.allowed_hosts", list, none, true, "Further names that a request's Host header may have: names, *.domain, or * for any. Always let in are IP addresses, localhost, the host's name, node.id and the host in http.listen; on a unix socket everything is. See docs/http-api.md."},
		{"http.token_file", text, "", true, "A file with a line name:token for each who may submit operator requests over HTTP, mode 0600 or 0400; read again at each reload. Like zookeeper.auth.file, a name without a slash is a systemd credential."},
		{"http.web_config", text, "", false, "A web configuration file of prometheus/exporter-toolkit: TLS, client certificates, passwords. A name without a slash is a systemd credential."},
		{"log.level", text, "info", true, "debug, info, warn or error."},
		{"log.format", text, "text", false, "text or json."},
		{"reload.watch", boolean, false, false, "Read the configuration again whenever its file, zookeeper.auth.file or http.token_file changes, as SIGHUP does."},
	}
}

func keyByName() map[string]Key {
	m := make(map[string]Key)
	for _, k := range Keys() {
		m[k.Name] = k
	}
	return m
}
