#!/bin/sh
# Makes the user, gives the configurations to it, and makes a password for ZooKeeper if there is none. Nothing is started: a
# host joins its group when its operator says so, and a leader is not restarted by an upgrade behind the operator's back.
set -e
if command -v systemd-sysusers >/dev/null 2>&1; then
	systemd-sysusers zkelectd.conf
else
	echo "zkelectd: there is no systemd-sysusers; make a user zkelectd, or run it as another one" >&2
fi
if command -v systemd-tmpfiles >/dev/null 2>&1; then
	systemd-tmpfiles --create zkelectd.conf || true # a configuration with other rights is no failure
fi
auth=/etc/zkelectd/zookeeper.auth
if [ ! -e "$auth" ] && [ ! -L "$auth" ]; then
	new=$(mktemp /etc/zkelectd/.zookeeper.auth.XXXXXX) # mode 0600
	trap 'rm -f "$new"' EXIT
	secret=$(od -An -tx1 -N16 /dev/urandom | tr -d ' \n')
	[ "${#secret}" -eq 32 ] || { echo "zkelectd: /dev/urandom gives no password for $auth" >&2; exit 1; }
	echo "zkelectd:$secret" >"$new"
	chown zkelectd: "$new" 2>/dev/null || true # without the user it is root's
	ln "$new" "$auth"                          # never over one that is there
	echo "zkelectd: $auth has a new password for ZooKeeper. All members of a group share one:"
	echo "zkelectd: copy this file from one host to all others before their daemons start."
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
