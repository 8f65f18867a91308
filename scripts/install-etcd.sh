#!/bin/sh
# Installs etcd and etcdctl, to compare lost hosts with. It only copies them from Debian's packages, which would start a service.
set -eu

if command -v etcd >/dev/null 2>&1 && command -v etcdctl >/dev/null 2>&1; then
	exit 0
fi
why="The benchmark of lost hosts compares with etcdctl lock"
"${0%/*}/apt-install.sh" --programs etcd "$why" etcd-server
exec "${0%/*}/apt-install.sh" --programs etcdctl "$why" etcd-client
