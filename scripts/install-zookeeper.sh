#!/bin/sh
# Makes sure of Java and a ZooKeeper server: ZOOKEEPER_HOME if it is set, else Debian's package.
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

sudo=
if [ "$(id -u)" -ne 0 ]; then
	sudo="sudo -n"
fi
if ! command -v apt-get >/dev/null 2>&1 || ! $sudo true 2>/dev/null; then
	echo "No ZooKeeper server or no Java found. Either install Debian's packages as root:" >&2
	echo "  apt-get install zookeeper default-jre-headless" >&2
	echo "or install a Java and set ZOOKEEPER_HOME to an unpacked ZooKeeper release." >&2
	exit 1
fi
echo "installing Java and Debian's ZooKeeper" >&2
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq
if [ -n "${ZOOKEEPER_HOME:-}" ]; then
	$sudo apt-get install -y -qq --no-install-recommends default-jre-headless >/dev/null
else
	# The package would pull in a whole Java desktop; its library and a headless Java are all that is used.
	$sudo apt-get install -y -qq --no-install-recommends default-jre-headless libzookeeper-java libslf4j-java >/dev/null
fi
have_zookeeper && have_java || {
	echo "ZooKeeper or Java is still missing after the installation" >&2
	exit 1
}
