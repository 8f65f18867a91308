#!/bin/sh
# Before a removal, not before an upgrade: stops the services, which hand leadership over.
set -e
case "$1" in
remove | 0) # Debian's word, and the number of packages that RPM leaves
	if [ -d /run/systemd/system ]; then
		systemctl stop zkelectd.service 'zkelectd@*.service' || true
		systemctl disable zkelectd.service || true
	fi
	;;
esac
