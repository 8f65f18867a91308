#!/bin/sh
# The user stays, because files may belong to it; so do configurations that the package did not install. A purge, and the
# removal of the .rpm, delete the ZooKeeper password, which the other
# members still have.
set -e
case "$1" in
purge | 0) # Debian's argument, and RPM's: the number of packages that remain
	rm -f /etc/zkelectd/zookeeper.auth
	rmdir /etc/zkelectd 2>/dev/null || true
	;;
esac
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
