#!/bin/sh
# Installs ClusterLabs' fence agents, for the tests with real ones. With their dependencies they are 23 packages, so only
# make fence-test needs them.
set -eu

if [ -x /usr/sbin/fence_dummy ] && [ -x /usr/sbin/fence_ipmilan ]; then
	exit 0
fi
exec "${0%/*}/apt-install.sh" "The tests with real fence agents need them" fence-agents
