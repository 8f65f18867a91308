#!/bin/sh
# Creates the user, makes the configurations readable by it, and generates a ZooKeeper password if there is none. It starts
# nothing: a host joins its group when its operator starts the service, and an upgrade does not restart a leader.
set -e
if command -v systemd-sysusers >/dev/null 2>&1; then
	systemd-sysusers zkelectd.conf
else
	echo "zkelectd: there is no systemd-sysusers; make a user zkelectd, or run it as another one" >&2
fi
if command -v systemd-tmpfiles >/dev/null 2>&1; then
	systemd-tmpfiles --create zkelectd.conf || true # other permissions on a configuration are not an error
fi
auth=/etc/zkelectd/zookeeper.auth
if [ ! -e "$auth" ] && [ ! -L "$auth" ]; then
	new=$(mktemp /etc/zkelectd/.zookeeper.auth.XXXXXX) # mode 0600
	trap 'rm -f "$new"' EXIT
	secret=$(od -An -tx1 -N16 /dev/urandom | tr -d ' \n')
	[ "${#secret}" -eq 32 ] || { echo "zkelectd: cannot read a password for $auth from /dev/urandom" >&2; exit 1; }
	echo "zkelectd:$secret" >"$new"
	chown zkelectd: "$new" 2>/dev/null || true # without the user, root owns it
	ln "$new" "$auth"                          # never replaces an existing one
	echo "zkelectd: $auth has a new password for ZooKeeper. All members of a group share one:"
	echo "zkelectd: copy this file from one host to all others before their daemons start."
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
