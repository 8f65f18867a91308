#!/bin/sh
# Installs Debian's packages, as root or by sudo: apt-install.sh [--programs "NAME..."] WHY PACKAGE... With --programs it only
# takes these programs out of the package, into /usr/local/bin, for one that would start a service. Where it can't, it says what
# is needed, and why.
set -eu
programs=
if [ "$1" = --programs ]; then
	programs=$2
	shift 2
fi
why=$1
shift

sudo=
[ "$(id -u)" -eq 0 ] || sudo="sudo -n"
if ! command -v apt-get >/dev/null 2>&1 || ! $sudo true 2>/dev/null; then
	echo "$why: install $*" >&2
	exit 1
fi
echo "installing ${programs:-$*}" >&2
$sudo apt-get update -qq
if [ -z "$programs" ]; then
	exec $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$work" && $sudo apt-get -qq -o APT::Sandbox::User=root download "$@" >/dev/null)
dpkg-deb --extract "$work"/*.deb "$work/package"
for name in $programs; do $sudo install -m 0755 "$work/package/usr/bin/$name" /usr/local/bin/; done
