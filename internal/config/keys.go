package config

import (
	"slices"
	"strconv"
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
	number   kind = "number"
	boolean  kind = "boolean"
	duration kind = "duration"
	list     kind = "list of strings"
	texts    kind = "map of strings"
	integers kind = "map of integers"
	choices  kind = "list of {when, use}"
	tables   kind = "map of maps of strings"
	levels   kind = "list of {command} or {agent, options, secrets, nodes}"
)

// Key describes a setting: its default, its meaning, and whether a reload applies it.
type Key struct {
	Name    string
	Kind    kind
	Default any
	Reload  bool
	Doc     string
}

// Scope says where a setting belongs if one daemon has many groups.
type Scope string

// A setting of the host is in the main file. A setting of a group is in the group's file, or in the defaults of the main file.
const (
	HostScope  Scope = "host"
	GroupScope Scope = "group"
)

// groupSections have the settings that belong to a group.
var groupSections = []string{"election", "policy", "slots", "health", "score", "child", "hooks", "fencing", "failsafe"}

// Scope returns where the setting belongs. All work on a host has the same containment, and all groups have one listener.
func (k Key) Scope() Scope {
	section, _, _ := strings.Cut(k.Name, ".")
	if slices.Contains(groupSections, section) && k.Name != "child.containment" && k.Name != failsafeListen {
		return GroupScope
	}
	return HostScope
}

// overridable lists the settings of the host that a group file can replace.
var overridable = []string{"node.priority", "node.labels", "node.observer", "zookeeper.root"}

// inGroupFile reports whether a group file can have the setting.
func (k Key) inGroupFile() bool {
	return k.Scope() == GroupScope || slices.Contains(overridable, k.Name)
}

// Env returns the environment variable that sets the key.
func (k Key) Env() string { return envPrefix + strings.ToUpper(strings.ReplaceAll(k.Name, ".", "_")) }

const envPrefix = "ZKELECTD_"

// Keys returns all settings, in the order of the reference.
func Keys() []Key {
	return slices.Concat(hostKeys(), zooKeeperKeys(), electionKeys(), policyKeys(), checkKeys(), childKeys(), guardKeys(), deviceKeys(), fencingKeys(), failsafeKeys(), serviceKeys())
}

// hostKeys describe the host, and how it takes part in groups.
func hostKeys() []Key {
	return []Key{
		{"node.id", text, hostName(), false, "The name of this daemon, unique in the group. Default: the host name."},
		{"node.site", text, "default", true, "The site of this host."},
		{"node.priority", integer, 100, true, "Ranks the nodes within a site; higher is better."},
		{"node.labels", texts, map[string]string{}, true, "Arbitrary labels, shown with the node; policies can use them."},
		{"node.observer", boolean, false, true, "With true this daemon is an observer: it never leads, but it can be the elector."},
		{"node.weight", number, 1.0, true, "The share of leaderships that the policies spread and fewest give this host, in relation to the other hosts: with 2 it leads twice as many groups as a host with 1. From 0.001 to 1000. See docs/policies.md."},
		{"node.max_leaders", integer, 0, true, "This host is not elected in further groups while it leads this many; each slot counts as one. It keeps what it leads. 0 for no limit."},
		{"node.state_dir", text, "", false, "The directory, on a disk of this host, for what must survive a restart of the host: what it has promised in failsafe mode. An absolute path. One daemon uses it at a time; it is created only for groups with failsafe.enabled, and used for those that have had it. Default: systemd's $STATE_DIRECTORY, else /var/lib/zkelectd."},
		{"groups_dir", text, "", false, "A directory with a file NAME.yaml for each group of this host. zookeeper.root is then the znode above the roots of the groups. Without it, the configuration is that of one group. See docs/groups.md."},
		{"moves.spread", duration, time.Duration(0), false, "The time over which the groups of which this host is the elector spread their preemptions, each by a time that depends on its name and term; requests of operators do not wait. There is also no preemption for this time after a member has vanished. Default: 1m with groups_dir, else 0s. Set the same on all hosts."},
	}
}

// zooKeeperKeys describe how to reach ZooKeeper.
func zooKeeperKeys() []Key {
	return []Key{
		{"zookeeper.servers", list, []string{"127.0.0.1:2181"}, false, "The servers of the ensemble, as host:port. Each address of a name is tried like a server of its own."},
		{"zookeeper.root", text, "/cluster", false, "The group's root znode, created if it does not exist. Daemons with the same root elect one leader."},
		{"zookeeper.session_timeout", duration, 6 * time.Second, false, "The session timeout to request; a server grants between 2 and 20 times its tickTime. The lease is 45% of the smallest timeout that may be granted."},
		{"zookeeper.min_session_timeout", duration, time.Duration(0), false, "The smallest session timeout that any server of the ensemble may grant; the lease is computed from it. Set it if the servers have different values of maxSessionTimeout. With 0s zkelectd assumes that every server grants at least what the first one granted. See docs/protocol.md."},
		{"zookeeper.connect_timeout", duration, time.Duration(0), false, "How long to try to connect for the first time before giving up. With 0s the daemon tries forever, and a command for 10s."},
		{"zookeeper.session_file", text, "", false, "The file (mode 0600) in which the daemon keeps its session's id and password and its pending hooks. If guard and daemon were killed together, 'zkelectd release' and the next start read it to clean up. One zkelectd at a time uses it, and locks FILE.lock beside it: only its user and root may have write access to the directory. Default: the file session in systemd's $RUNTIME_DIRECTORY; without that directory, none."},
		{"zookeeper.auth.file", text, "", true, "A file with lines user:password for ZooKeeper's digest scheme, mode 0600 or 0400, the same on all hosts. The session authenticates with each line, and each of these users has all rights to the znodes that are created; use several lines to change the password. Read again at each reload. A name without a slash is a systemd credential (LoadCredential=). See docs/security.md."},
		{"zookeeper.acl", text, "open", true, "Who can access the znodes that are created: private (only the users of zookeeper.auth.file), readable (everyone can read) or open (everyone can do everything). With open, one setAcl by anyone who can reach a ZooKeeper server locks out the whole group: use open for demos and tests only. See docs/security.md."},
		{"zookeeper.tls.enabled", boolean, false, false, "Use TLS (1.2 or later) to connect to the servers; zookeeper.servers must then name their secureClientPort."},
		{"zookeeper.tls.ca", text, "", false, "A PEM file with the CAs to trust. Default: those of the system. As with zookeeper.auth.file, a name without a slash is a systemd credential."},
		{"zookeeper.tls.cert", text, "", false, "A PEM file with this host's certificate, for servers that require one; needs zookeeper.tls.key."},
		{"zookeeper.tls.key", text, "", false, "The PEM file with the private key of zookeeper.tls.cert; other users must not be able to read it."},
		{"zookeeper.tls.server_name", text, "", false, "The name that the servers' certificates must have. Default: the host in zookeeper.servers."},
	}
}

// electionKeys describe when there is an election, and how long a leader may take.
func electionKeys() []Key {
	return []Key{
		{"election.failback.mode", text, cluster.FailbackImmediate, true, "Whether a better node replaces a healthy leader: immediate (at once), delayed (after election.failback.delay) or manual (only 'zkelectd reelect' or 'zkelectd move' replaces it). Default: delayed with the policy spread, else immediate. Part of the policy, which applies to the whole group."},
		{"election.failback.delay", duration, 30 * time.Second, true, "With the mode delayed: how long the better node must have been eligible without interruption."},
		{"election.max_preemptions", integer, 6, true, "How often policy may replace a healthy leader (a preemption) within election.preemption_window; 0 for no limit. Failovers, operator requests and the first preemption under a new revision of the policy are not limited. Part of the policy."},
		{"election.preemption_window", duration, time.Hour, true, "The window in which preemptions are counted."},
		{"election.settle", duration, 3 * time.Second, false, "How long the first election waits for other hosts, if the group has never had a leader, or if this daemon is the first that has registered after all were down. It ends early when all members of the last election are registered, except those that were ranked below the one that would be elected."},
		{"election.exclusion", duration, time.Minute, false, "How long a node is excluded after its first strike; each further strike doubles the time, up to an hour. A leader that has been READY for five times as long loses its strikes."},
	}
}

// policyKeys describe who leads, and how many leaders there are.
func policyKeys() []Key {
	return []Key{
		{"policy.type", text, "priority", true, "How nodes are ranked: one of " + strings.Join(policy.Types(), ", ") + ". See docs/policies.md."},
		{"policy.rank", list, []string{}, true, "A list of rankers to use instead of policy.type. The first ranker that distinguishes two members decides between them. Each is one of " + strings.Join(policy.Rankers(), ", ") + ", with:GROUP (the node that leads that group), apart:GROUP (any other node) or expr:EXPRESSION."},
		{"policy.sites", integers, map[string]int{}, true, "The priority of each site, higher is better; a site that is not listed has 0."},
		{"policy.strategies", choices, []cluster.Strategy{}, true, "A list of {when: CONDITION, use: TYPE}. The first strategy whose condition is true ranks the members; a strategy without when always applies. If no condition is true, policy.type ranks them."},
		{"policy.expr", text, "", true, "The expression of the type expr. If it returns a number, higher is better; if it returns a boolean, true is better."},
		{"policy.hysteresis", integer, 20, true, "By how many percent a latency or score must be better than the leader's."},
		{"policy.exec", list, []string{}, true, "The program of the type exec: it reads the snapshot as JSON on its standard input and prints the ranking as JSON. If it has no answer within 2s, priority ranks instead. Each host uses the program in its own configuration, never one from ZooKeeper."},
		{"policy.filter", list, []string{}, true, "Expressions about a member; it can lead only if all of them are true."},
		{"policy.apart_strict", list, []string{}, true, "Names of other groups of this host. A node that leads one of them is not eligible."},
		{"slots.count", integer, 0, true, "How many leaders the group has, each with its own slot and work: 1 to " + strconv.Itoa(MaxSlots) + "; 0 for a group with one leader, without slots. The first host of a group writes this value to ZooKeeper, and only the command `slots set` changes it there. See docs/groups.md."},
		{"slots.per_node", integer, 0, true, "How many slots one host can lead at most; 0 for all. As slots.count, it is only the first value."},
	}
}

// checkKeys describe the health and the score of the host.
func checkKeys() []Key {
	return []Key{
		{"health.exec", list, []string{}, false, "The host is healthy while this command exits with 0; an unhealthy host is not elected. Set at most one of exec, http and tcp; without any the host always counts as healthy."},
		{"health.http", text, "", false, "The host is healthy while this URL answers 2xx."},
		{"health.tcp", text, "", false, "The host is healthy while this host:port accepts connections."},
		{"health.interval", duration, 5 * time.Second, false, "The time between two checks. A check that takes longer than half of it, and longer than 2s, has failed."},
		{"health.fall", integer, 3, false, "The host is unhealthy after this many failed checks in a row, and healthy again after two successful ones. After a start, the first check alone decides."},
		{"score.exec", list, []string{}, false, "The score is the first word of this command's output; with the type score, higher is better. Set at most one of exec and http."},
		{"score.http", text, "", false, "The score is the first word of this URL's response."},
		{"score.interval", duration, 10 * time.Second, false, "The time between two measurements; the last few are averaged. A measurement that takes longer than half of it, and longer than 2s, has failed."},
	}
}

// childKeys describe the leader-only work.
func childKeys() []Key {
	return []Key{
		{"child.command", list, []string{}, false, "The leader-only child: a program and its arguments."},
		{"child.unit", text, "", false, "A systemd service, such as app.service, that runs on the leader only. Use it instead of child.command. With slots, each slot has its own, as in app@${ZKELECTD_SLOT}.service. See docs/systemd.md."},
		{"child.none", boolean, false, false, "With true this host leads without leader-only work: programs learn from the HTTP API who leads. In a group file it replaces a child.command or child.unit of the defaults. Without it, a daemon refuses to start without a child, a unit and hooks, unless it is an observer."},
		{"child.env", texts, map[string]string{}, false, "Additional environment variables of the child and of the hooks; not for child.unit, which has its own."},
		{"child.dir", text, "", false, "The child's working directory. Default: the daemon's."},
		{"child.ready.exec", list, []string{}, false, "The child is ready when this command exits with 0. Set at most one of exec, http, tcp, notify and delay; without any the child is ready once it has started."},
		{"child.ready.http", text, "", false, "The child is ready when this URL answers 2xx."},
		{"child.ready.tcp", text, "", false, "The child is ready when this host:port accepts connections."},
		{"child.ready.notify", boolean, false, false, "The child is ready when it sends READY=1 to $NOTIFY_SOCKET (sd_notify)."},
		{"child.ready.delay", duration, time.Duration(0), false, "The child is ready after this time."},
		{"child.ready.timeout", duration, 20 * time.Second, false, "The start of a child that is not ready after this time has failed. The check is repeated ten times a second; one that takes longer than a tenth of this time, and longer than 1s, has failed."},
		{"child.live.exec", list, []string{}, false, "The child is alive while this command exits with 0. Set at most one of exec, http and tcp; without any it is alive until it exits."},
		{"child.live.http", text, "", false, "The child is alive while this URL answers 2xx."},
		{"child.live.tcp", text, "", false, "The child is alive while this host:port accepts connections."},
		{"child.live.interval", duration, 5 * time.Second, false, "The time between two checks, once the child is ready. A check that takes longer than half of it, and longer than 2s, has failed."},
		{"child.live.fall", integer, 3, false, "After this many failed checks in a row the leader gives up leadership, with a strike."},
		{"child.stop_signal", text, "TERM", false, "The signal that asks the child to stop."},
		{"child.stop_timeout", duration, time.Duration(0), false, "How long the child may take to stop after stop_signal. Then it is killed with its whole process group, or earlier if the lease ends. With 0s the timeout is as long as the lease allows (5/6 of the lease), but at most 10s."},
		{"child.containment", text, "auto", false, "What keeps all processes of the child together: cgroup (a control group of version 2, which must be delegated), pidns (a PID namespace, in which the child sees other pids; needs root or user namespaces), keeper (a subreaper), or auto: cgroup if possible, else keeper. See docs/safety.md."},
		{"child.max_restarts", integer, 3, false, "How often within a minute a child that exits by itself is started again on the same host. If it exits once more, the leader gives up leadership."},
	}
}

// guardKeys describe the guard, and the hooks around the work.
func guardKeys() []Key {
	return []Key{
		{"guard.realtime", boolean, false, false, "Give guard and keeper the lowest real-time priority, so that no ordinary process of a busy host delays a kill. Needs LimitRTPRIO=1 or CAP_SYS_NICE; without that permission they run without the priority, and log that. See docs/safety.md."},
		{"guard.keepers", boolean, false, false, "Give each group its own keeper, which runs the group's work. Needed for more than one group if neither control groups nor PID namespaces are available; each keeper takes 2 MB or more."},
		{"hooks.pre_start", list, []string{}, false, "A command that runs before the child starts, but not again when a child that has exited is restarted in place. If it fails, the takeover fails."},
		{"hooks.post_stop", list, []string{}, false, "A command that runs once pre_start has run and the child is dead for good, before leadership is released. The daemon runs it; if the daemon died, the guard does; if both died, 'zkelectd release' or the next start on this host does (this needs zookeeper.session_file). It may only undo what pre_start did. See docs/safety.md."},
		{"hooks.on_change", list, []string{}, false, "A command that runs for each change of this daemon's role, in order and one at a time, with JSON on its standard input. If the daemon dies as the leader, the process that runs post_stop also runs this command, with the state standby."},
		{"hooks.on_leader_change", list, []string{}, true, "A command that runs on every member, leading or not, when it sees that another term leads or that nobody leads any more, and once at the start. If it is slow, only the newest change waits. See docs/configuration.md."},
		{"hooks.timeout", duration, 10 * time.Second, false, "A hook that runs for longer is killed. A takeover that takes longer than this and child.ready.timeout together is over: the candidate is excluded, and the next one is elected."},
	}
}

// fencingKeys describe how a candidate makes sure that the host of a lost leader is off.
func fencingKeys() []Key {
	return []Key{
		{"fencing.command", list, []string{}, false, "A command that switches off the node of a leader that was lost, and exits with 0 only if it is certainly off. It gets the node as JSON on its standard input and in ZKELECTD_FENCE_*. This host runs it as a candidate, while it waits until every older lease is over. See docs/fencing.md."},
		{"fencing.agent", text, "", false, "Instead of fencing.command: a fence agent of ClusterLabs, as in fence_ipmilan, or the absolute path of one."},
		{"fencing.options", texts, map[string]string{}, false, "Options of the agent for all nodes."},
		{"fencing.secrets", texts, map[string]string{}, false, "Options of the agent whose values are in files, as in {password: /etc/zkelectd/ipmi-password}; mode 0600 or 0400. As with zookeeper.auth.file, a name without a slash is a systemd credential."},
		{"fencing.nodes", tables, Tables{}, false, "The nodes that the agent can fence, by node.id, with their own options, as in {n1: {ip: 192.0.2.1}}."},
		{"fencing.levels", levels, []FencingLevel{}, false, "Several ways to fence a node, as a list; each has a command, or agent, options, secrets and nodes. They are tried in this order until one succeeds."},
		{"fencing.timeout", duration, time.Minute, false, "How long each level may take; from 1s to 5m."},
		{"fencing.required", boolean, false, false, "With true this host takes over from a leader that was lost only after that node was fenced. If that fails, it gives up, with a strike, and another node is elected."},
		{"fencing.skip_wait", boolean, false, false, "With true the lease wait for a node ends when it was fenced. Only where success means that the host is off: not for agents that cut it off from its network or its storage. See docs/fencing.md."},
	}
}

// serviceKeys describe what the daemon offers on its host: HTTP, logs, reloads.
func serviceKeys() []Key {
	return []Key{
		{"http.listen", text, "", false, "host:port or unix:/path (a socket of mode 0660) for probes, status, events, metrics and operator requests; empty for none. See docs/http-api.md."},
		{"http.allowed_hosts", list, []string{}, true, "Additional names that the Host header of a request may have: names, *.domain, or * for any. IP addresses, localhost, the host's name, node.id and the host in http.listen are always allowed; on a unix socket every name is allowed. See docs/http-api.md."},
		{"http.token_file", text, "", true, "A file with one line name:token for each client that may submit operator requests over HTTP, mode 0600 or 0400. Read again at each reload. As with zookeeper.auth.file, a name without a slash is a systemd credential."},
		{"http.web_config", text, "", false, "A web configuration file of prometheus/exporter-toolkit: TLS and client certificates. A name without a slash is a systemd credential."},
		{"log.level", text, "info", true, "debug, info, warn or error."},
		{"log.format", text, "text", false, "text or json."},
		{"reload.watch", boolean, false, false, "Reload the configuration, as SIGHUP does, whenever its file, a group file in groups_dir, zookeeper.auth.file or http.token_file changes, also where symbolic links lead."},
	}
}

func keyByName() map[string]Key {
	m := make(map[string]Key)
	for _, k := range Keys() {
		m[k.Name] = k
	}
	return m
}

// IsGroupKey reports whether a group file can have the setting with that name.
func IsGroupKey(name string) bool { return keyByName()[name].inGroupFile() }
