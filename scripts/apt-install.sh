#!/bin/sh
# Installs Debian's packages, as root or by sudo: apt-install.sh WHY PACKAGE... Where it can't, it says what is needed, and why.
set -eu
why=$1
shift

sudo=
[ "$(id -u)" -eq 0 ] || sudo="sudo -n"
if ! command -v apt-get >/dev/null 2>&1 || ! $sudo true 2>/dev/null; then
	echo "$why: install $*" >&2
	exit 1
fi
echo "installing $*" >&2
$sudo apt-get update -qq
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
