# Part of scripts/systemd-guest.sh: units as the leader-only work. n1 has app.service, n2 has app@g2.service; both write what
# they do, with their term, into one ledger.
[ -e /run/guest.sh ] || { echo "this is for the guest of scripts/test-systemd.sh alone" >&2; exit 1; }
ledger=/run/ledger
units=/run/systemd/system
examples=/usr/share/doc/zkelectd/examples
cat >/run/app <<'APP'
#!/bin/bash
while :; do
	echo "$ZKELECTD_TERM $ZKELECTD_NODE $EPOCHREALTIME" >>/run/ledger
	read -rt 0.01 <>/run/nothing
done
APP
chmod +x /run/app
mkfifo /run/nothing
touch $ledger
# unit_member FILE NODE PRIORITY UNIT
unit_member() {
	printf 'node: {id: %s, priority: %s}\nzookeeper: {servers: ["%s"], root: /units, session_timeout: 4s}\nelection: {max_preemptions: 0}\nchild: {unit: %s, stop_timeout: 300ms, restart: {backoff: 100ms}}\n' \
		"$2" "$3" "$zk" "$4" >"$1"
	chmod 0644 "$1"
}
lines() { wc -l <$ledger; }
# fresh: the ledger grows.
fresh() {
	local before
	before=$(lines)
	sleep 0.1
	[ "$(lines)" -gt "$before" ]
}
# worked NODE FROM: it has since line FROM. A member that is preferred may come back before anybody looks.
worked() { tail -n "+$(($2 + 1))" $ledger | grep -q " $1 "; }
works() { fresh && [ "$(tail -n 1 $ledger | cut -d' ' -f2)" = "$1" ]; }
group_of() { echo "/sys/fs/cgroup$(systemctl show -P ControlGroup "$1")"; }
idle() { [ "$(systemctl show -P ActiveState "$1")" != active ] && ! pgrep -f "^/bin/bash /run/app" >/dev/null; }
quiet() { [ "$(systemctl show -P ActiveState "$1")" != active ]; }
said() { journalctl --no-pager --output=cat -u "$1" | grep -qF "$2"; }
daemon_pid() { pgrep -P "$(main_pid "$1")" -f 'zkelectd daemon'; }
# sane: no line of a term after one of a later term, and each term has one node.
sane() {
	awk '$1 < last || ($1 in node && node[$1] != $2) { print "overlap: " $0 " after term " last; bad = 1 } { last = $1; node[$1] = $2 } END { exit bad }' $ledger ||
		fail "two have worked at once"
}
clear_strikes() {
	zkelectd clear-strikes n1 --zk $zk --root /units
	zkelectd clear-strikes n2 --zk $zk --root /units
	true
} >/dev/null 2>&1
# figure WHAT FROM: how long nobody worked between two terms, from line FROM on.
figure() {
	tail -n "+$2" $ledger | awk -v what="$1" '
		$1 != term && term { d = ($3 - at) * 1000; if (d > most) most = d } { term = $1; at = $3 }
		END { printf "figure: %s: nobody works for %d ms\n", what, most }'
}

# What the drop-in goes by: systemd looks for the permit before each process that it starts, and takes a backslash in the
# name of an environment file for a quoting one.
gate=/sys/fs/cgroup/system.slice/gate
mkdir $gate /run/gate
printf '[Service]\nType=oneshot\nExecStartPre=/bin/rmdir %s\nEnvironmentFile=%s/cgroup.events\nExecStart=/bin/touch /run/gate/ran\n' $gate $gate >$units/gate.service
printf '[Service]\nType=oneshot\nEnvironmentFile=-/run/gate/%%n.env\nExecStart=/bin/sh -c "echo $ZKELECTD_TERM >/run/gate/term"\n' >$units/'quoted\x2dname.service'
echo 'ZKELECTD_TERM="7"' >/run/gate/quotedx2dname.service.env
systemctl daemon-reload
systemctl start gate.service 2>/dev/null && fail "a unit starts whose permit has gone meanwhile"
[ ! -e $gate ] && [ ! -e /run/gate/ran ] || fail "a process is started without the permit"
systemctl start 'quoted\x2dname.service' || fail "a unit with a backslash in its name does not start"
[ "$(cat /run/gate/term)" = 7 ] || fail "a unit with a backslash in its name does not find its environment"
echo "ok: systemd looks for the permit before each process"

mkdir -p $units/app.service.d "$units/app@.service.d" /etc/polkit-1/rules.d
for u in app app@; do printf '[Service]\nExecStart=/run/app\n' >"$units/$u.service"; done
unit_member /etc/zkelectd.yaml n1 100 app.service
unit_member /etc/zkelectd/g2.yaml n2 90 app@g2.service
systemctl daemon-reload

systemctl stop dbus.socket dbus.service 2>/dev/null
zkelectd check --config /etc/zkelectd.yaml 2>&1 | grep -qF "cannot reach systemd over D-Bus" || fail "check does not miss D-Bus"
systemctl start zkelectd || fail "it does not start"
until_ok "without D-Bus the takeover fails, and says why" said zkelectd "cannot reach systemd over D-Bus (is dbus.service running?)"
systemctl start dbus.service || fail "no D-Bus"
until_ok "systemd is on the bus" busctl status org.freedesktop.systemd1
clear_strikes
until_ok "without the drop-in it fails, and says why" said zkelectd "app.service is not tied to this host's leadership: it lacks ExecCondition=+"
cp $examples/app.service.d/zkelectd.conf $units/app.service.d/
sed 's|/zkelectd.service|/system-zkelectd.slice/zkelectd.service|; s/zkelectd.service/zkelectd@%i.service/; s|/run/zkelectd/|/run/zkelectd-%i/|' $examples/app.service.d/zkelectd.conf >"$units/app@.service.d/zkelectd.conf"
systemctl daemon-reload
zkelectd check --config /etc/zkelectd.yaml >/dev/null || fail "check refuses the drop-in"
clear_strikes
until_ok "without the polkit rule it fails, and says what to do" said zkelectd "install the polkit rule"
[ ! -s $ledger ] || fail "it worked already"
sed 's/"app.service"/"app.service", "app@g2.service"/' $examples/50-zkelectd.rules >/etc/polkit-1/rules.d/50-zkelectd.rules
chmod 0755 /etc/polkit-1/rules.d
systemctl restart polkit || fail "no polkit"
clear_strikes
until_ok "with all of them the unit works" works n1
[ "$(stat -c %U "$(group_of app.service)/cgroup.kill")" = zkelectd ] || fail "the control group is not the guard's"
systemctl start zkelectd@g2 || fail "the second member does not start"
systemctl start app@g2.service 2>/dev/null && fail "a standby's unit can be started by hand"
sane
echo "ok: by hand it starts nowhere else"

# What zkelectd's user could do to the unit's user, which is root, and to process 1. It makes the permit, which is its own.
permit=/sys/fs/cgroup/system.slice/system-zkelectd.slice/zkelectd@g2.service/zkelectd-permit
as_user() { setpriv --reuid=zkelectd --regid=zkelectd --clear-groups "$@"; }
# refused WHAT REASON: the unit does not start, in time, says why, and process 1 goes on.
refused() {
	local began=$SECONDS
	timeout 20 systemctl start app@g2.service 2>/dev/null && fail "$1: the unit starts"
	[ $((SECONDS - began)) -lt 10 ] || fail "$1: it takes $((SECONDS - began)) s"
	timeout 5 systemctl show -P Version >/dev/null || fail "$1: process 1 stands still"
	until_ok "$1 is refused" said app@g2.service "$2"
}
# answering TEXT: another program, run by zkelectd's user, answers at the socket; if TEXT is empty it says nothing.
answering() {
	as_user perl -MIO::Socket::UNIX -e '
		$l = IO::Socket::UNIX->new(Local => "/run/zkelectd-g2/unit.sock", Listen => 5) or die;
		while ($c = $l->accept) { if ($ARGV[0]) { print $c $ARGV[0]; close $c } else { push @open, $c } }' "$1" &
	forger=$!
	until_ok "another answers at the socket" test -S /run/zkelectd-g2/unit.sock
}
silent() {
	kill $forger
	wait $forger 2>/dev/null
	rm -f /run/zkelectd-g2/unit.sock
}
as_user mkdir $permit || fail "the permit of n2 cannot be made by its user"
as_user mkfifo $permit/fifo 2>/dev/null && fail "zkelectd's user can put a FIFO into the permit"
as_user mkfifo /run/zkelectd-g2/leader.env /run/zkelectd-g2/unit.sock || fail "no FIFO"
refused "a FIFO for the socket" "/run/zkelectd-g2/unit.sock is not a socket"
rm /run/zkelectd-g2/leader.env /run/zkelectd-g2/unit.sock
as_user ln -s /run/zkelectd/unit.sock /run/zkelectd-g2/unit.sock
refused "a link for the socket" "/run/zkelectd-g2/unit.sock is not a socket"
rm /run/zkelectd-g2/unit.sock
answering ""
refused "silence" "does not answer at /run/zkelectd-g2/unit.sock within 2s"
silent
answering '{"v":1,"group":"/system.slice/system-app.slice/app@g2.service","guard":{"pid":1,"started":1},"daemon":{"pid":1,"started":1}}'
refused "process 1 for a guard" "is not this host's zkelectd"
silent
as_user rmdir $permit
for f in /run/zkelectd /run/zkelectd-g2; do
	as_user sh -c "printf 'LD_PRELOAD=/run/evil.so\n' >$f/leader.env" || fail "zkelectd's user cannot write there"
done
systemctl kill --signal=KILL app.service
until_ok "the unit is started again beside a file with LD_PRELOAD" works n1
tr '\0' '\n' <"/proc/$(main_pid app.service)/environ" | sort >/run/environ
grep -q LD_PRELOAD /run/environ && fail "what zkelectd's user has written is in the unit's environment"
[ "$(grep -c ^ZKELECTD_ /run/environ)" = 5 ] || fail "the unit's environment has not the five variables: $(cat /run/environ)"
[ "$(stat -c '%U %a' /run/zkelectd.units /run/zkelectd.units/app.service.env | tr '\n' ' ')" = "root 755 root 600 " ] || fail "others may write the unit's environment"
rm /run/zkelectd/leader.env /run/zkelectd-g2/leader.env
sane
echo "ok: zkelectd's user can't have the unit run its code, nor stop process 1"

unit_member /etc/zkelectd/g2.yaml n2 200 app@g2.service
from=$(lines)
systemctl reload zkelectd@g2 || fail "the reload fails"
until_ok "a reload moves the leader and its unit" works n2
quiet app.service || fail "the unit of n1 goes on"
figure handover "$from"
sane

for i in 1 2 3; do
	from=$(lines)
	term=$(tail -n 1 $ledger | cut -d' ' -f1)
	kill -KILL "$(daemon_pid zkelectd@g2)"
	later() { works n2 && [ "$(tail -n 1 $ledger | cut -d' ' -f1)" -gt "$term" ]; }
	until_ok "the daemon is killed: n2 works in a later term" later
	figure "kill -9 of the daemon" "$from"
	sane
done
for i in 1 2 3; do
	from=$(lines)
	kill -KILL "$(main_pid zkelectd@g2)"
	until_ok "the guard is killed: n1 works" worked n1 "$from"
	clear_strikes
	until_ok "and n2 works again" works n2
	figure "kill -9 of the guard" "$from"
	sane
done
from=$(lines)
kill_all zkelectd@g2
until_ok "guard and daemon are killed at once: n1 works" worked n1 "$from"
until_ok "and n2 works again" works n2
figure "kill -9 of both" "$from"
sane
for i in 1 2; do
	from=$(lines)
	kill -STOP "$(daemon_pid zkelectd@g2)"
	until_ok "the daemon is stopped: n1 works" worked n1 "$from"
	clear_strikes
	until_ok "and n2 works again" works n2
	figure "SIGSTOP of the daemon" "$from"
	sane
done

# The guard ends a unit without the bus.
systemctl stop dbus.socket dbus.service 2>/dev/null
kill -STOP "$(daemon_pid zkelectd@g2)"
until_ok "without D-Bus a unit ends with its lease" idle app@g2.service
systemctl start dbus.service || fail "no D-Bus"
until_ok "systemd is on the bus" busctl status org.freedesktop.systemd1
clear_strikes
until_ok "with D-Bus somebody works again" fresh
clear_strikes
until_ok "and n2 works again" works n2
sane

# A unit that ends is started again in its term.
term=$(tail -n 1 $ledger | cut -d' ' -f1)
systemctl kill --signal=KILL app@g2.service
until_ok "a unit that dies" said zkelectd@g2 "was killed by signal 9"
until_ok "is started again" works n2
systemctl stop app@g2.service
until_ok "one that is stopped by hand, too" works n2
[ "$(tail -n 1 $ledger | cut -d' ' -f1)" = "$term" ] || fail "in another term"
sane

# Restart= of the unit's own does not outlive the lease, nor does a unit that takes its time to stop.
printf '[Service]\nRestart=always\nRestartSec=0\nTimeoutStopSec=60s\nKillSignal=SIGCONT\n' >"$units/app@.service.d/zz.conf"
systemctl daemon-reload
from=$(lines)
kill -STOP "$(daemon_pid zkelectd@g2)"
until_ok "a unit that restarts itself ends with its lease: n1 works" worked n1 "$from"
clear_strikes
until_ok "and n2 works again" works n2
sane
unit_member /etc/zkelectd/g2.yaml n2 50 app@g2.service
systemctl reload zkelectd@g2 || fail "the reload fails"
until_ok "a unit that does not stop in time is killed: n1 works" works n1
said zkelectd@g2 "it did not stop in time" || fail "it was not killed"
sane

# A unit that never says that it has started fails the takeover; a restart of the service is none of a unit's.
printf '[Service]\nType=notify\n' >"$units/app@.service.d/zz.conf"
systemctl daemon-reload
unit_member /etc/zkelectd/g2.yaml n2 200 app@g2.service
sed -i 's/stop_timeout/ready: {timeout: 1s}, &/' /etc/zkelectd/g2.yaml
systemctl restart zkelectd@g2 || fail "it does not restart"
until_ok "a unit that does not start in time" said zkelectd@g2 "cannot start app@g2.service: timed out"
until_ok "leaves leadership to n1" works n1
rm "$units/app@.service.d/zz.conf"
systemctl daemon-reload
unit_member /etc/zkelectd/g2.yaml n2 200 app@g2.service
clear_strikes
systemctl restart zkelectd@g2 || fail "it does not restart"
until_ok "n2 works again" works n2
systemctl restart zkelectd@g2 || fail "it does not restart"
until_ok "and after a restart of its service" works n2
unit_member /etc/zkelectd/g2.yaml n2 50 app@g2.service
systemctl reload zkelectd@g2 || fail "the reload fails"
until_ok "n1 works" works n1
sane

# What is wrong with a unit is said.
ln -s /dev/null $units/veiled.service
printf '[Service]\nExecStart=/run/app\n' >$units/bare.service
systemctl daemon-reload
for u in "gone.service:there is no unit gone.service" "veiled.service:veiled.service is masked" "bare.service:is not tied to this host's leadership"; do
	unit_member /run/one.yaml n3 1 "${u%%:*}"
	out=$(zkelectd check --config /run/one.yaml 2>&1) && fail "check is content with $u"
	[[ "$out" == *"${u#*:}"* ]] || fail "check says of $u: $out"
done
echo "ok: check says what is wrong with a unit"

echo "figure: the guard takes $(awk '/^Pss:/ {print $2}' "/proc/$(main_pid zkelectd)/smaps_rollup") kB (Pss)"
from=$(lines)
systemctl stop zkelectd || fail "the stop fails"
until_ok "a stop hands over to n2's unit" works n2
[ "$(systemctl show -P Result zkelectd)" = success ] || fail "the stop is no success"
quiet app.service || fail "the unit goes on"
figure stop "$from"
systemctl stop zkelectd@g2 || fail "the stop fails"
fresh && fail "somebody works on"
sane
echo "figure: $(lines) lines of $(cut -d' ' -f1 $ledger | uniq | wc -l) terms, none of two at once"
