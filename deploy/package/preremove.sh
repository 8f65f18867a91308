#!/bin/sh
# Stops the services before a removal, but not before an upgrade. They hand leadership over.
set -e
case "$1" in
remove | 0) # Debian's argument, and RPM's: the number of packages that remain
	if [ -d /run/systemd/system ]; then
		systemctl stop zkelectd.service 'zkelectd@*.service' || true
		systemctl disable zkelectd.service || true
	fi
	;;
esac
