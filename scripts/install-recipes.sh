#!/bin/sh
# Installs the programs that the recipes in docs/recipes use, from Debian's packages. No service of this machine is started.
set -eu
PATH=$PATH:/usr/sbin:/sbin

missing=
need() { command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; } # PROGRAM PACKAGE
need python3 python3
need ip iproute2
need haproxy haproxy
need nginx nginx
need /usr/lib/postgresql/15/bin/postgres postgresql-15
need named bind9
need nsupdate bind9-dnsutils
need redis-server redis-server
need javac default-jdk-headless

[ -n "$missing" ] || exit 0
# Debian starts the service of a package that it installs, unless this program refuses that.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ] && [ "$(id -u)" -eq 0 ]; then
	trap 'rm -f $policy' EXIT
	printf '#!/bin/sh\nexit 101\n' >$policy
	chmod 0755 $policy
fi
# shellcheck disable=SC2086
"${0%/*}/apt-install.sh" "The recipes use other programs" $missing
