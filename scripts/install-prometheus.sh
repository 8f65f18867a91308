#!/bin/sh
# Installs promtool and prometheus, for the tests of the alerts. It only copies them from Debian's package, which would start a
# service.
set -eu

if command -v promtool >/dev/null 2>&1 && command -v prometheus >/dev/null 2>&1; then
	exit 0
fi
exec "${0%/*}/apt-install.sh" --programs "promtool prometheus" "The tests of the alerts need promtool and prometheus on the PATH" prometheus
