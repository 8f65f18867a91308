#!/bin/sh
# Makes the user and gives the configurations to it. Nothing is started: a host joins its group when its operator says so,
# and a leader is not restarted by an upgrade behind the operator's back.
set -e
if command -v systemd-sysusers >/dev/null 2>&1; then
	systemd-sysusers zkelectd.conf
else
	echo "zkelectd: there is no systemd-sysusers; make a user zkelectd, or run it as another one" >&2
fi
if command -v systemd-tmpfiles >/dev/null 2>&1; then
	systemd-tmpfiles --create zkelectd.conf || true # a configuration with other rights is no failure
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
