#!/bin/sh
# Installs Debian packages, as root or with sudo: apt-install.sh [--programs "NAME..."] WHY PACKAGE... With --programs it only
# copies these programs from the package to /usr/local/bin; that is for packages that would start a service. If it cannot install
# anything, it prints what is needed and why.
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
