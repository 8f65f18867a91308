#!/bin/sh
# Downloads the ZooKeeper of one of Debian's suites, without installing it, and prints the directory for ZOOKEEPER_HOME:
# unpack-zookeeper.sh SUITE. It uses the mirror of this machine, with lists and a state of its own. The directory is kept.
set -eu
suite=$1
dir=${XDG_CACHE_HOME:-$HOME/.cache}/zkelectd-zookeeper/$suite
if ls "$dir"/lib/zookeeper-[0-9]*.jar >/dev/null 2>&1; then
	echo "$dir"
	exit 0
fi
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' | grep -v security | head -n 1)
[ -n "$mirror" ] || {
	echo "apt has no mirror of Debian: ZooKeeper of $suite cannot be downloaded" >&2
	exit 1
}
rm -rf "$dir"
mkdir -p "$dir/lists/partial" "$dir/debs" "$dir/lib.new"
trap 'rm -rf "$dir/lists" "$dir/debs" "$dir/lib.new"' EXIT
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$dir/sources.list"
: >"$dir/status"
cat >"$dir/apt.conf" <<EOF
Dir::Etc::sourcelist "$dir/sources.list";
Dir::Etc::sourceparts "-";
Dir::State::lists "$dir/lists";
Dir::State::status "$dir/status";
Dir::Cache "";
APT::Sandbox::User "root";
Acquire::Languages "none";
EOF
export APT_CONFIG="$dir/apt.conf"
apt-get -qq update >&2
# What a server without its AdminServer needs; suites have some of it only.
packages=
for name in libzookeeper-java libslf4j-java liblog4j1.2-java libnetty-java libnetty-common-java libnetty-buffer-java \
	libdropwizard-metrics-java libsnappy-java libcommons-cli-java libcommons-io-java; do
	[ -z "$(apt-cache show "$name" 2>/dev/null)" ] || packages="$packages $name"
done
# shellcheck disable=SC2086
(cd "$dir/debs" && apt-get -qq download $packages >&2)
for deb in "$dir"/debs/*.deb; do dpkg-deb --extract "$deb" "$dir"; done
# One logging backend only. The manifest of zookeeper.jar names the jars of this machine, which may be others, so it comes last
# on a class path in the order of names.
java=$dir/usr/share/java
for name in slf4j-api slf4j-simple log4j-1.2 metrics-core snappy-java commons-cli commons-io zookeeper-jute netty-buffer netty-codec \
	netty-common netty-handler netty-resolver netty-transport netty-transport-native-unix-common netty-transport-native-epoll; do
	[ ! -e "$java/$name.jar" ] || ln -s "$java/$name.jar" "$dir/lib.new/${name#zookeeper-}.jar"
done
ln -s "$java"/zookeeper-[0-9]*.jar "$dir/lib.new"
mv "$dir/lib.new" "$dir/lib"
echo "$dir"
