#!/bin/sh
# The user stays, since files may belong to it; and so do configurations that the package has not brought. The password for
# ZooKeeper goes with a purge, and with the .rpm: the other members have it too.
set -e
case "$1" in
purge | 0) # Debian's word, and the number of packages that RPM leaves
	rm -f /etc/zkelectd/zookeeper.auth
	rmdir /etc/zkelectd 2>/dev/null || true
	;;
esac
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
