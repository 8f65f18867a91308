#!/bin/sh
# Makes sure of a D-Bus daemon, of polkit and of pgrep, which units as leader-only work are tested with.
set -eu

if command -v dbus-daemon >/dev/null 2>&1 && command -v pgrep >/dev/null 2>&1 && [ -e /usr/share/polkit-1 ]; then
	exit 0
fi
sudo=
[ "$(id -u)" -eq 0 ] || sudo="sudo -n"
if ! command -v apt-get >/dev/null 2>&1 || ! $sudo true 2>/dev/null; then
	echo "The tests of units need D-Bus: install dbus, polkitd and procps" >&2
	exit 1
fi
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq
$sudo apt-get install -y -qq --no-install-recommends dbus polkitd procps >/dev/null
