#!/bin/sh
# Makes sure of promtool and prometheus, for the tests of the alerts: out of Debian's package, but without installing that,
# since it starts a service.
set -eu

if command -v promtool >/dev/null 2>&1 && command -v prometheus >/dev/null 2>&1; then
	exit 0
fi
sudo=
[ "$(id -u)" -eq 0 ] || sudo="sudo -n"
if ! command -v apt-get >/dev/null 2>&1 || ! $sudo true 2>/dev/null; then
	echo "The tests of the alerts need promtool and prometheus on the PATH: https://prometheus.io/download/" >&2
	exit 1
fi
echo "taking promtool and prometheus out of Debian's package, into /usr/local/bin" >&2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
$sudo apt-get update -qq
(cd "$work" && $sudo apt-get -qq -o APT::Sandbox::User=root download prometheus >/dev/null)
dpkg-deb --extract "$work"/prometheus_*.deb "$work/package"
$sudo install -m 0755 "$work/package/usr/bin/promtool" "$work/package/usr/bin/prometheus" /usr/local/bin/
