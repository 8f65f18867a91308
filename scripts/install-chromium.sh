#!/bin/sh
# Installs Chromium, for the tests of the page.
set -eu

if command -v chromium >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1; then
	exit 0
fi
exec "${0%/*}/apt-install.sh" "The tests of the page need a Chromium on the PATH" chromium fonts-inter
