#!/bin/sh
# Generates the ZooKeeper password for deploy/docker-compose.yml, once: secret/zookeeper, which all members share. Anyone who
# has it can do everything to the group. Other users of this host cannot enter the directory; in a container the user can read the file.
set -eu
cd "$(dirname "$0")"
[ ! -e secret/zookeeper ] || exit 0
mkdir -p -m 0700 secret
new=$(mktemp secret/.zookeeper.XXXXXX)
trap 'rm -f "$new"' EXIT
secret=$(od -An -tx1 -N16 /dev/urandom | tr -d ' \n')
[ "${#secret}" -eq 32 ] || { echo "secret.sh: cannot read a password from /dev/urandom" >&2; exit 1; }
echo "zkelectd:$secret" >"$new"
chmod 0444 "$new"
mv "$new" secret/zookeeper
