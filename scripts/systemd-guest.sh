#!/bin/bash
# What scripts/test-systemd.sh does once systemd is up: two members of one group on one host.
set -u
zk=127.0.0.1:21999
group="--zk $zk --root /cluster"
fail() {
	echo "FAILED: $*"
	systemctl status --no-pager --lines=20 zkelectd zkelectd@g2
	journalctl --no-pager --output=cat --lines=40 -u "zkelectd*"
	systemctl --force --force poweroff
	exit 1
}
# until WHAT COMMAND...: it is to happen within 20 s.
until_ok() {
	local what=$1 i
	shift
	for ((i = 0; i < 200; i++)); do
		if "$@" >/dev/null 2>&1; then
			echo "ok: $what"
			return
		fi
		sleep 0.1
	done
	fail "$what"
}
leads() { [ "$(zkelectd leader $group)" = "$1" ]; }
says() { [[ "$(systemctl show -P StatusText "$1")" == $2 ]]; }
main_pid() { systemctl show -P MainPID "$1"; }
is_new() { [ "$(main_pid "$1")" != "$2" ] && systemctl is-active "$1"; }
# kill_all SERVICE: all at once, by the kernel. systemd kills one after the other, and the last may have released by then.
kill_all() { echo 1 >"/sys/fs/cgroup$(systemctl show -P ControlGroup "$1")/cgroup.kill"; }
member() { printf 'node: {id: %s, priority: %s}\nzookeeper: {servers: ["%s"], root: /cluster, session_timeout: 4s, auth: {file: zookeeper}}\nchild: {command: [sleep, "10000"]}\n' "$2" "$3" "$zk" >"$1"; }

systemctl start systemd-journald.service
dpkg --path-include='/usr/share/*' --install /run/package.deb >/dev/null || fail "the package is not installed"
cat >/run/systemd/system/zookeeper.service <<E
[Service]
ExecStart=/usr/bin/java -Xmx256m -XX:-UsePerfData -cp /usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar org.apache.zookeeper.server.ZooKeeperServerMain 21999 /tmp/zookeeper
StandardError=null
E
systemctl daemon-reload
made=$(cat /etc/zkelectd/zookeeper.auth) # by the package
rm /etc/zkelectd/zookeeper.auth
member /etc/zkelectd.yaml n1 100
member /etc/zkelectd/g2.yaml n2 90
(umask 077 && echo user:secret >/etc/zkelectd/g2.auth)
systemd-tmpfiles --create zkelectd.conf

systemctl start --no-block zkelectd
until_ok "without a server it says that it waits" says zkelectd "waiting for ZooKeeper at $zk"
[ "$(systemctl is-active zkelectd)" = activating ] || fail "it is ready too early"
systemctl start zookeeper
until_ok "it leads" says zkelectd "leading, elector, term *"
systemctl is-active zkelectd >/dev/null || fail "it is not active"
systemctl start zkelectd@g2 || fail "the second member does not start"
until_ok "the second is a standby" says zkelectd@g2 "standby; n1 (site default) is elected in term *"

work=$(echo /sys/fs/cgroup/system.slice/zkelectd.service/zkelectd-work-*)
[ -n "$(cat "$work/cgroup.procs")" ] || fail "the child is not in a control group of its own: $work"
[ "$(stat -c %U "/proc/$(head -n1 "$work/cgroup.procs")")" = zkelectd ] || fail "the child is not the user zkelectd's"
echo "ok: the child is in a control group of its own"
grep -z . "/proc/$(head -n1 "$work/cgroup.procs")/environ" | tr '\0' '\n' | grep -E '^(NOTIFY_SOCKET|WATCHDOG_|INVOCATION_ID|CREDENTIALS)' && fail "the child has systemd's variables"


credential() { cat "/run/credentials/$1/zookeeper" 2>/dev/null; }
[ -e /run/credentials/zkelectd.service/zookeeper ] && [ -z "$(credential zkelectd.service)" ] || fail "the credential that is not there is not empty"
[ "$(credential zkelectd@g2.service)" = user:secret ] || fail "the credential of the instance is $(credential zkelectd@g2.service)"
echo "ok: a credential that is missing is none, and that of an instance is read"

echo other:secret >/etc/zkelectd/g2.auth
systemctl reload zkelectd@g2 || fail "the reload fails"
[ "$(credential zkelectd@g2.service)" = user:secret ] || echo "note: this systemd renews credentials at a reload"

member /etc/zkelectd/g2.yaml n2 200
systemctl reload zkelectd@g2 || fail "the reload fails"
until_ok "a reload moves the leader" leads n2
sed -i s/priority/prio/ /etc/zkelectd/g2.yaml
systemctl reload zkelectd@g2 2>/dev/null && fail "a refused reload succeeds"
leads n2 || fail "a refused reload moves the leader"
journalctl --no-pager -u zkelectd@g2 | grep -q 'node.prio: is not a setting' || fail "the journal does not say why the reload was refused"
echo "ok: a refused reload fails, and changes nothing"
member /etc/zkelectd/g2.yaml n2 200

# A leader that gave up has a strike and is excluded for a while; one that died has none.
clear_strikes() { zkelectd clear-strikes n2 $group >/dev/null 2>&1 || true; }

before=$(main_pid zkelectd@g2)
kill_all zkelectd@g2
until_ok "a unit that is killed whole is replaced at once" leads n1
released() { journalctl --no-pager -u zkelectd@g2 | grep -q 'closed session 0x'; }
until_ok "and its session is closed" released
until_ok "and is started again" is_new zkelectd@g2 "$before"
clear_strikes # a daemon that was killed after its guard has given up
until_ok "and leads again" leads n2

before=$(main_pid zkelectd@g2)
kill -STOP "$before"
until_ok "a frozen guard is replaced" is_new zkelectd@g2 "$before"
clear_strikes # a leader that has lost its guard has given up, unless it was killed as well
until_ok "with its strikes cleared, leads again" leads n2

# Both processes stand still: nobody but systemd's watchdog is left to notice.
mkdir -p /run/systemd/system/zkelectd@g2.service.d
printf '[Service]\nWatchdogSec=3s\n' >/run/systemd/system/zkelectd@g2.service.d/watchdog.conf
systemctl daemon-reload
systemctl restart zkelectd@g2 || fail "it does not restart"
until_ok "it leads, with a watchdog of 3s" leads n2
before=$(main_pid zkelectd@g2)
systemctl kill --signal=STOP --kill-who=all zkelectd@g2
until_ok "the watchdog ends a service that stands still" is_new zkelectd@g2 "$before"
journalctl --no-pager -u zkelectd@g2 | grep -q "Failed with result 'watchdog'" || fail "it was not the watchdog"
clear_strikes # a leader that stood still has given up, unless it was killed
until_ok "with its strikes cleared, it leads again" leads n2

systemctl stop zkelectd@g2 || fail "the stop fails"
until_ok "a stop hands over" leads n1
systemctl stop zkelectd || fail "the stop fails"
[ "$(systemctl show -P Result zkelectd)" = success ] || fail "the stop is no success"
[ -z "$(ls -d /run/zkelectd* 2>/dev/null)" ] || fail "the runtime directory is left"

. /run/guest-unit.sh

# A path is read again at a reload, by the reload itself as well.
(umask 077 && echo "$made" >/etc/zkelectd/zookeeper.auth && chown zkelectd: /etc/zkelectd/zookeeper.auth)
export ZKELECTD_ZOOKEEPER_AUTH_FILE=/etc/zkelectd/zookeeper.auth
group="--zk $zk --root /private"
printf 'node: {id: n1}\nzookeeper: {servers: ["%s"], root: /private, session_timeout: 4s, auth: {file: %s}, acl: private}\nchild: {command: [sleep, "10000"]}\n' \
	"$zk" "$ZKELECTD_ZOOKEEPER_AUTH_FILE" >/etc/zkelectd.yaml
systemctl start zkelectd || fail "it does not start in a private tree"
until_ok "it leads in a private tree" leads n1
echo user:new >>/etc/zkelectd/zookeeper.auth
systemctl reload zkelectd || fail "a reload with another password fails"
journalctl --no-pager -u zkelectd | grep -q 'taken over: zookeeper.auth.file' || fail "the reload does not say that it has taken the password over"
echo "ok: a password is taken over by systemctl reload"
echo user:unknown >/etc/zkelectd/zookeeper.auth
systemctl reload zkelectd 2>/dev/null && fail "a reload with a password that nothing knows succeeds"
echo "$made" >/etc/zkelectd/zookeeper.auth
systemctl stop zkelectd || fail "the stop fails"
group="--zk $zk --root /cluster"

# As a new user would: what the documentation says of the service.
# as_told FILE SECTION: its first block of commands.
as_told() {
	rm /etc/zkelectd.yaml
	sed -n "/^## $2/,\$p" "/usr/share/doc/zkelectd/docs/$1" | awk '/^```sh$/ {on=1; next} /^```$/ {if (on) exit} on' | sed "s/zk1:2181/$zk/" >/run/told.sh
	grep -q 'systemctl enable --now zkelectd' /run/told.sh || fail "$1 has no such block"
	sh -eu /run/told.sh >/dev/null || fail "$1 is wrong"
	until_ok "what $1 says works" leads n1
	systemctl stop zkelectd || fail "the stop fails"
}
as_told getting-started.md "As a service"
rm -r /run/systemd/system/app.service* /etc/polkit-1/rules.d/50-zkelectd.rules
as_told systemd.md "Set it up"
journalctl --no-pager -u app.service | grep -q 'Started app.service' || fail "the unit was not started"
echo "all is well"
systemctl --force --force poweroff
