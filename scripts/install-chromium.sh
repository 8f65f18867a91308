#!/bin/sh
# Makes sure of a Chromium, for the tests of the page.
set -eu

if command -v chromium >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1; then
	exit 0
fi
sudo=
[ "$(id -u)" -eq 0 ] || sudo="sudo -n"
if ! command -v apt-get >/dev/null 2>&1 || ! $sudo true 2>/dev/null; then
	echo "The tests of the page need a Chromium on the PATH: install chromium" >&2
	exit 1
fi
echo "installing chromium" >&2
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq
$sudo apt-get install -y -qq --no-install-recommends chromium fonts-inter >/dev/null
