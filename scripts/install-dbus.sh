#!/bin/sh
# Installs a D-Bus daemon, polkit and pgrep, for the tests of units as leader-only work.
set -eu

if command -v dbus-daemon >/dev/null 2>&1 && command -v pgrep >/dev/null 2>&1 && [ -e /usr/share/polkit-1 ]; then
	exit 0
fi
exec "${0%/*}/apt-install.sh" "The tests of units need D-Bus" dbus polkitd procps
