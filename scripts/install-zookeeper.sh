#!/bin/sh
# Installs Java and a ZooKeeper server, unless ZOOKEEPER_HOME is set: Debian's packages.
set -eu

have_zookeeper() {
	if [ -n "${ZOOKEEPER_HOME:-}" ]; then
		ls "$ZOOKEEPER_HOME"/lib/zookeeper-[0-9]*.jar >/dev/null 2>&1
	else
		[ -e /usr/share/java/zookeeper.jar ] && [ -e /usr/share/java/slf4j-simple.jar ]
	fi
}
have_java() { command -v java >/dev/null 2>&1 || [ -x "${JAVA_HOME:-/nonexistent}/bin/java" ]; }

if have_zookeeper && have_java; then
	exit 0
fi
if [ -n "${ZOOKEEPER_HOME:-}" ] && ! have_zookeeper; then
	echo "ZOOKEEPER_HOME is $ZOOKEEPER_HOME, which has no lib/zookeeper-*.jar: point it at an unpacked release, or unset it" >&2
	exit 1
fi

# The package zookeeper depends on a complete Java desktop; its library and a headless Java are sufficient.
packages="default-jre-headless"
[ -n "${ZOOKEEPER_HOME:-}" ] || packages="$packages libzookeeper-java libslf4j-java"
# shellcheck disable=SC2086
"${0%/*}/apt-install.sh" "ZooKeeper (or ZOOKEEPER_HOME, an unpacked release) or Java is missing" $packages
have_zookeeper && have_java || {
	echo "ZooKeeper or Java is still missing after the installation" >&2
	exit 1
}
