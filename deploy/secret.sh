#!/bin/sh
# Makes the password of deploy/docker-compose.yml for ZooKeeper, once: secret/zookeeper, which all members share. With
# it one can do everything to the group. The folder keeps other users of this host out; in a container the file is for its user.
set -eu
cd "$(dirname "$0")"
[ ! -e secret/zookeeper ] || exit 0
mkdir -p -m 0700 secret
new=$(mktemp secret/.zookeeper.XXXXXX)
trap 'rm -f "$new"' EXIT
secret=$(od -An -tx1 -N16 /dev/urandom | tr -d ' \n')
[ "${#secret}" -eq 32 ] || { echo "secret.sh: /dev/urandom gives no password" >&2; exit 1; }
echo "zkelectd:$secret" >"$new"
chmod 0444 "$new"
mv "$new" secret/zookeeper
