# Part of scripts/systemd-guest.sh: units as the leader-only work. n1 runs app.service, n2 runs app@g2.service; both append lines
# with their term to one ledger.
[ -e /run/guest.sh ] || { echo "this runs only in the guest of scripts/test-systemd.sh" >&2; exit 1; }
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
	printf 'node: {id: %s, priority: %s}\nzookeeper: {servers: ["%s"], root: /units, session_timeout: 4s}\npolicy: {failback: immediate, max_preemptions: 0}\nchild: {unit: %s, stop_timeout: 300ms}\n' \
		"$2" "$3" "$zk" "$4" >"$1"
	chmod 0644 "$1"
}
lines() { wc -l <$ledger; }
# someone_works: the ledger grows.
someone_works() {
	local before
	before=$(lines)
	sleep 0.1
	[ "$(lines)" -gt "$before" ]
}
# worked NODE FROM: the node has worked since line FROM. A preferred member may lead again before this is checked.
worked() { tail -n "+$(($2 + 1))" $ledger | grep -q " $1 "; }
works() { someone_works && [ "$(tail -n 1 $ledger | cut -d' ' -f2)" = "$1" ]; }
group_of() { echo "/sys/fs/cgroup$(systemctl show -P ControlGroup "$1")"; }
idle() { [ "$(systemctl show -P ActiveState "$1")" != active ] && ! pgrep -f "^/bin/bash /run/app" >/dev/null; }
inactive() { [ "$(systemctl show -P ActiveState "$1")" != active ]; }
logged() { journalctl --no-pager --output=cat -u "$1" | grep -qF "$2"; }
daemon_pid() { pgrep -P "$(main_pid "$1")" -f 'zkelectd daemon'; }
# check_ledger: no line of a term follows one of a later term, and each term has one node.
check_ledger() {
	awk '$1 < last || ($1 in node && node[$1] != $2) { print "overlap: " $0 " after term " last; bad = 1 } { last = $1; node[$1] = $2 } END { exit bad }' $ledger ||
		fail "two worked at the same time"
}
clear_strikes() {
	zkelectd clear-strikes n1 --zk $zk --root /units
	zkelectd clear-strikes n2 --zk $zk --root /units
	true
} >/dev/null 2>&1
# report_gap WHAT FROM prints the longest time between two terms, from line FROM on.
report_gap() {
	tail -n "+$2" $ledger | awk -v what="$1" '
		$1 != term && term { d = ($3 - at) * 1000; if (d > most) most = d } { term = $1; at = $3 }
		END { printf "figure: %s: no node works for %d ms\n", what, most }'
}

# What the drop-in relies on: systemd checks for the permit before each process that it starts, and treats a backslash in the name
# of an environment file as quoting.
gate=/sys/fs/cgroup/system.slice/gate
mkdir $gate /run/gate
printf '[Service]\nType=oneshot\nExecStartPre=/bin/rmdir %s\nEnvironmentFile=%s/cgroup.events\nExecStart=/bin/touch /run/gate/ran\n' $gate $gate >$units/gate.service
printf '[Service]\nType=oneshot\nEnvironmentFile=-/run/gate/%%n.env\nExecStart=/bin/sh -c "echo $ZKELECTD_TERM >/run/gate/term"\n' >$units/'quoted\x2dname.service'
echo 'ZKELECTD_TERM="7"' >/run/gate/quotedx2dname.service.env
systemctl daemon-reload
systemctl start gate.service 2>/dev/null && fail "a unit starts although its permit was removed meanwhile"
[ ! -e $gate ] && [ ! -e /run/gate/ran ] || fail "a process starts without the permit"
systemctl start 'quoted\x2dname.service' || fail "a unit with a backslash in its name does not start"
[ "$(cat /run/gate/term)" = 7 ] || fail "a unit with a backslash in its name does not get its environment"
echo "ok: systemd checks for the permit before each process"

mkdir -p $units/app.service.d "$units/app@.service.d" /etc/polkit-1/rules.d
for u in app app@; do printf '[Service]\nExecStart=/run/app\n' >"$units/$u.service"; done
unit_member /etc/zkelectd.yaml n1 100 app.service
unit_member /etc/zkelectd/g2.yaml n2 90 app@g2.service
systemctl daemon-reload

systemctl stop dbus.socket dbus.service 2>/dev/null
zkelectd check --config /etc/zkelectd.yaml 2>&1 | grep -qF "cannot reach systemd over D-Bus" || fail "check does not report that D-Bus is missing"
zkelectd init || fail "the group of the units cannot be created"
systemctl start zkelectd || fail "the service does not start"
until_ok "without D-Bus the takeover fails with the reason" logged zkelectd "cannot reach systemd over D-Bus (is dbus.service running?)"
systemctl start dbus.service || fail "D-Bus does not start"
until_ok "systemd is on the bus" busctl status org.freedesktop.systemd1
clear_strikes
until_ok "without the drop-in the takeover fails with the reason" logged zkelectd "app.service is not tied to this host's leadership: it lacks ExecCondition=+"
cp $examples/app.service.d/zkelectd.conf $units/app.service.d/
sed 's|/zkelectd.service|/system-zkelectd.slice/zkelectd.service|; s/zkelectd.service/zkelectd@%i.service/; s|/run/zkelectd/|/run/zkelectd-%i/|' $examples/app.service.d/zkelectd.conf >"$units/app@.service.d/zkelectd.conf"
systemctl daemon-reload
zkelectd check --config /etc/zkelectd.yaml >/dev/null || fail "check refuses the drop-in"
clear_strikes
until_ok "without the polkit rule the takeover fails with the remedy" logged zkelectd "install the polkit rule"
[ ! -s $ledger ] || fail "the unit has already worked"
sed 's/"app.service"/"app.service", "app@g2.service"/' $examples/50-zkelectd.rules >/etc/polkit-1/rules.d/50-zkelectd.rules
chmod 0755 /etc/polkit-1/rules.d
systemctl restart polkit || fail "polkit does not start"
clear_strikes
until_ok "with D-Bus, drop-in and rule the unit works" works n1
[ "$(stat -c %U "$(group_of app.service)/cgroup.kill")" = zkelectd ] || fail "the guard does not own the control group"
systemctl start zkelectd@g2 || fail "the second member does not start"
systemctl start app@g2.service 2>/dev/null && fail "a standby's unit can be started by hand"
check_ledger
echo "ok: a unit cannot be started by hand on a standby"

# Attacks by zkelectd's user, which owns the permit, on the unit's user, which is root, and on process 1.
permit=/sys/fs/cgroup/system.slice/system-zkelectd.slice/zkelectd@g2.service/zkelectd-permit-app@g2.service
as_user() { setpriv --reuid=zkelectd --regid=zkelectd --clear-groups "$@"; }
# start_fails WHAT REASON: the unit does not start, the log has the reason soon, and process 1 is not blocked.
start_fails() {
	local began=$SECONDS
	timeout 20 systemctl start app@g2.service 2>/dev/null && fail "$1: the unit starts"
	[ $((SECONDS - began)) -lt 10 ] || fail "$1: it takes $((SECONDS - began)) s"
	timeout 5 systemctl show -P Version >/dev/null || fail "$1: process 1 is blocked"
	until_ok "$1 is refused" logged app@g2.service "$2"
}
# forge TEXT: another program, run by zkelectd's user, answers TEXT at the socket, or nothing if TEXT is empty.
forge() {
	as_user perl -MIO::Socket::UNIX -e '
		$l = IO::Socket::UNIX->new(Local => $ARGV[0], Listen => 5) or die;
		while ($c = $l->accept) { if ($ARGV[1]) { print $c $ARGV[1]; close $c } else { push @open, $c } }' /run/zkelectd-g2/app@g2.service.sock "$1" &
	forger=$!
	until_ok "another program listens at the socket" test -S /run/zkelectd-g2/app@g2.service.sock
}
end_forgery() {
	kill $forger
	wait $forger 2>/dev/null
	rm -f /run/zkelectd-g2/app@g2.service.sock
}
as_user mkdir $permit || fail "its user cannot create the permit of n2"
as_user mkfifo $permit/fifo 2>/dev/null && fail "zkelectd's user can create a FIFO in the permit"
as_user mkfifo /run/zkelectd-g2/leader.env /run/zkelectd-g2/app@g2.service.sock || fail "cannot create a FIFO"
start_fails "a FIFO for the socket" "/run/zkelectd-g2/app@g2.service.sock is not a socket"
rm /run/zkelectd-g2/leader.env /run/zkelectd-g2/app@g2.service.sock
as_user ln -s /run/zkelectd/app.service.sock /run/zkelectd-g2/app@g2.service.sock
start_fails "a link for the socket" "/run/zkelectd-g2/app@g2.service.sock is not a socket"
rm /run/zkelectd-g2/app@g2.service.sock
forge ""
start_fails "no answer" "does not answer at /run/zkelectd-g2/app@g2.service.sock within 2s"
end_forgery
forge '{"v":1,"group":"/system.slice/system-app.slice/app@g2.service","guard":{"pid":1,"started":1},"daemon":{"pid":1,"started":1}}'
start_fails "process 1 as the guard" "is not this host's zkelectd"
end_forgery
as_user rmdir $permit
for f in /run/zkelectd /run/zkelectd-g2; do
	as_user sh -c "printf 'LD_PRELOAD=/run/evil.so\n' >$f/leader.env" || fail "zkelectd's user cannot write there"
done
systemctl kill --signal=KILL app.service
until_ok "the unit is started again while there is a file with LD_PRELOAD" works n1
tr '\0' '\n' <"/proc/$(main_pid app.service)/environ" | sort >/run/environ
grep -q LD_PRELOAD /run/environ && fail "the unit's environment contains what zkelectd's user wrote"
names=$(grep -o '^ZKELECTD_[A-Z_]*' /run/environ | tr '\n' ' ')
wanted="ZKELECTD_CAUSE ZKELECTD_GROUP ZKELECTD_NODE ZKELECTD_PREVIOUS_CLEAN ZKELECTD_PREVIOUS_LEADER ZKELECTD_ROOT ZKELECTD_SITE ZKELECTD_TERM "
[ "$names" = "$wanted" ] || fail "the unit's environment has $names"
[ "$(stat -c '%U %a' /run/zkelectd.units /run/zkelectd.units/app.service.env | tr '\n' ' ')" = "root 755 root 600 " ] || fail "other users can write the file with the unit's environment"
rm /run/zkelectd/leader.env /run/zkelectd-g2/leader.env
check_ledger
echo "ok: zkelectd's user can neither make the unit run its code nor block process 1"

unit_member /etc/zkelectd/g2.yaml n2 200 app@g2.service
from=$(lines)
systemctl reload zkelectd@g2 || fail "the reload fails"
until_ok "a reload moves the leader and its unit" works n2
inactive app.service || fail "the unit of n1 still runs"
report_gap handover "$from"
check_ledger

for i in 1 2 3; do
	from=$(lines)
	term=$(tail -n 1 $ledger | cut -d' ' -f1)
	kill -KILL "$(daemon_pid zkelectd@g2)"
	later() { works n2 && [ "$(tail -n 1 $ledger | cut -d' ' -f1)" -gt "$term" ]; }
	until_ok "after a kill of the daemon n2 works in a later term" later
	report_gap "kill -9 of the daemon" "$from"
	check_ledger
done
for i in 1 2 3; do
	from=$(lines)
	kill -KILL "$(main_pid zkelectd@g2)"
	until_ok "after a kill of the guard n1 works" worked n1 "$from"
	clear_strikes
	until_ok "n2 works again" works n2
	report_gap "kill -9 of the guard" "$from"
	check_ledger
done
from=$(lines)
kill_all zkelectd@g2
until_ok "after a kill of all processes n1 works" worked n1 "$from"
until_ok "n2 works again" works n2
report_gap "kill -9 of both" "$from"
check_ledger
for i in 1 2; do
	from=$(lines)
	kill -STOP "$(daemon_pid zkelectd@g2)"
	until_ok "while the daemon is stopped n1 works" worked n1 "$from"
	clear_strikes
	until_ok "n2 works again" works n2
	report_gap "SIGSTOP of the daemon" "$from"
	check_ledger
done

# The guard stops a unit without D-Bus.
systemctl stop dbus.socket dbus.service 2>/dev/null
kill -STOP "$(daemon_pid zkelectd@g2)"
until_ok "without D-Bus a unit ends with its lease" idle app@g2.service
systemctl start dbus.service || fail "D-Bus does not start"
until_ok "systemd is on the bus" busctl status org.freedesktop.systemd1
clear_strikes
until_ok "with D-Bus a node works again" someone_works
clear_strikes
until_ok "n2 works again" works n2
check_ledger

# A unit that ends is started again in the same term.
term=$(tail -n 1 $ledger | cut -d' ' -f1)
systemctl kill --signal=KILL app@g2.service
until_ok "a killed unit is logged" logged zkelectd@g2 "was killed by signal 9"
until_ok "it is started again" works n2
systemctl stop app@g2.service
until_ok "a unit that is stopped by hand is started again" works n2
[ "$(tail -n 1 $ledger | cut -d' ' -f1)" = "$term" ] || fail "the term has changed"
check_ledger

# Neither Restart= in the unit nor a slow stop lets the unit outlive the lease.
printf '[Service]\nRestart=always\nRestartSec=0\nTimeoutStopSec=60s\nKillSignal=SIGCONT\n' >"$units/app@.service.d/zz.conf"
systemctl daemon-reload
from=$(lines)
kill -STOP "$(daemon_pid zkelectd@g2)"
until_ok "a unit with Restart= ends with its lease, and n1 works" worked n1 "$from"
clear_strikes
until_ok "n2 works again" works n2
check_ledger
unit_member /etc/zkelectd/g2.yaml n2 50 app@g2.service
systemctl reload zkelectd@g2 || fail "the reload fails"
until_ok "a unit that does not stop in time is killed, and n1 works" works n1
logged zkelectd@g2 "it did not stop in time" || fail "it was not killed"
check_ledger

# A takeover fails if the unit never notifies systemd that it has started.
printf '[Service]\nType=notify\n' >"$units/app@.service.d/zz.conf"
systemctl daemon-reload
unit_member /etc/zkelectd/g2.yaml n2 200 app@g2.service
sed -i 's/stop_timeout/ready: {timeout: 1s}, &/' /etc/zkelectd/g2.yaml
systemctl restart zkelectd@g2 || fail "the restart fails"
until_ok "a unit that does not start in time is logged" logged zkelectd@g2 "cannot start app@g2.service: timed out"
until_ok "n1 leads instead" works n1
rm "$units/app@.service.d/zz.conf"
systemctl daemon-reload
unit_member /etc/zkelectd/g2.yaml n2 200 app@g2.service
clear_strikes
systemctl restart zkelectd@g2 || fail "the restart fails"
until_ok "n2 works again" works n2
systemctl restart zkelectd@g2 || fail "the restart fails"
until_ok "n2 works after a restart of its service" works n2
unit_member /etc/zkelectd/g2.yaml n2 50 app@g2.service
systemctl reload zkelectd@g2 || fail "the reload fails"
until_ok "n1 works" works n1
check_ledger

# check reports what is wrong with a unit.
ln -s /dev/null $units/veiled.service
printf '[Service]\nExecStart=/run/app\n' >$units/bare.service
systemctl daemon-reload
for u in "gone.service:there is no unit gone.service" "veiled.service:veiled.service is masked" "bare.service:is not tied to this host's leadership"; do
	unit_member /run/one.yaml n3 1 "${u%%:*}"
	out=$(zkelectd check --config /run/one.yaml 2>&1) && fail "check accepts $u"
	[[ "$out" == *"${u#*:}"* ]] || fail "check reports for $u: $out"
done
echo "ok: check reports what is wrong with a unit"

echo "figure: the guard takes $(awk '/^Pss:/ {print $2}' "/proc/$(main_pid zkelectd)/smaps_rollup") kB (Pss)"
from=$(lines)
systemctl stop zkelectd || fail "the stop fails"
until_ok "a stop hands over to n2's unit" works n2
[ "$(systemctl show -P Result zkelectd)" = success ] || fail "the stop is no success"
inactive app.service || fail "the unit still runs"
report_gap stop "$from"
systemctl stop zkelectd@g2 || fail "the stop fails"
someone_works && fail "a node still works"
check_ledger
echo "figure: $(lines) lines in $(cut -d' ' -f1 $ledger | uniq | wc -l) terms, never two at the same time"

# A unit that is promoted runs on both nodes, and works where it leads.
cat >/run/promoted-app <<'APP'
#!/bin/bash
echo "$ZKELECTD_ROLE,$ZKELECTD_TERM" >/run/role-$ZKELECTD_NODE
while :; do
	read -r term 2>/dev/null </run/roles/$ZKELECTD_NODE && echo "$term $ZKELECTD_NODE $EPOCHREALTIME" >>/run/ledger
	read -rt 0.01 <>/run/nothing
done
APP
chmod +x /run/promoted-app
install -d -o zkelectd /run/roles
promoted_member() {
	printf 'node: {id: %s, priority: %s}\nzookeeper: {servers: ["%s"], root: /promoted, session_timeout: 4s}\npolicy: {failback: immediate, max_preemptions: 0}\n' "$2" "$3" "$zk" >"$1"
	printf 'child:\n  unit: %s\n  stop_timeout: 300ms\n  promote: {exec: [sh, -c, "echo $ZKELECTD_TERM >/run/roles/$ZKELECTD_NODE"]}\n  demote: {exec: [sh, -c, "[ ! -e /run/refuse ] && rm /run/roles/$ZKELECTD_NODE"]}\n' "$4" >>"$1"
	chmod 0644 "$1"
}
# Without a check of its readiness a standby may be promoted before its first line has run, so systemd removes the role.
for u in app app@; do printf '[Service]\nExecStartPre=+rm -f /run/roles/${ZKELECTD_NODE}\nExecStart=\nExecStart=/run/promoted-app\n' >"$units/$u.service.d/zz.conf"; done
promoted_member /etc/zkelectd.yaml n1 100 app.service
promoted_member /etc/zkelectd/g2.yaml n2 90 app@g2.service
systemctl daemon-reload
: >$ledger
zkelectd init || fail "the group of the promoted units cannot be created"
systemctl start zkelectd zkelectd@g2 || fail "the services do not start"
until_ok "n1 works" works n1
until_ok "the unit of n2 runs as a standby" grep -qx standby, /run/role-n2
standby=$(main_pid app@g2.service)
leader=$(main_pid app.service)
from=$(lines)
promoted_member /etc/zkelectd/g2.yaml n2 200 app@g2.service
systemctl reload zkelectd@g2 || fail "the reload fails"
until_ok "n2 works" works n2
report_gap "handover between promoted units" "$from"
[ "$(main_pid app@g2.service) $(main_pid app.service)" = "$standby $leader" ] || fail "a unit was started again"
check_ledger

# A start of which zkelectd does not know would be a leader that was not promoted, or a standby that nobody watches.
systemctl restart app@g2.service 2>/dev/null && fail "a promoted unit can be started by hand"
until_ok "n2 works again, with another process" works n2
[ "$(main_pid app@g2.service)" != "$standby" ] || fail "the unit was not started again"
check_ledger
for end in "KILL daemon" "STOP daemon" "KILL guard"; do
	from=$(lines)
	pid=$(daemon_pid zkelectd@g2)
	[ "$end" != "KILL guard" ] || pid=$(main_pid zkelectd@g2)
	kill "-${end% *}" "$pid"
	until_ok "after $end n1 works" worked n1 "$from"
	report_gap "$end, promoted units" "$from"
	zkelectd clear-strikes --all --zk $zk --root /promoted >/dev/null 2>&1
	until_ok "n2 works again" works n2
	check_ledger
done
touch /run/refuse
promoted_member /etc/zkelectd/g2.yaml n2 50 app@g2.service
systemctl reload zkelectd@g2 || fail "the reload fails"
standby=$(main_pid app@g2.service)
until_ok "n1 works after a demotion that fails" works n1
until_ok "the unit that was not demoted runs again, as another process" is_new app@g2.service "$standby"
check_ledger
systemctl stop zkelectd zkelectd@g2 || fail "the stop fails"
someone_works && fail "a node still works"
idle app.service && idle app@g2.service || fail "a standby still runs"
rm $units/app.service.d/zz.conf "$units/app@.service.d/zz.conf"
echo "ok: promoted units"
