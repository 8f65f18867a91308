#!/bin/sh
# Generates zkelectd@.service, for several groups on one host, from zkelectd.service.
exec sed -e '1c # For one of several groups on this host: zkelectd@NAME reads /etc/zkelectd/NAME.yaml. Generated from zkelectd.service by' \
	-e '2i # scripts/instance-unit.sh.' \
	-e 's|^Description=.*|Description=zkelectd, leader election for this host in %i|' \
	-e 's|/etc/zkelectd\.yaml|/etc/zkelectd/%i.yaml|' \
	-e 's|/etc/zkelectd/zookeeper\.auth|/etc/zkelectd/%i.auth|' \
	-e 's|^RuntimeDirectory=.*|RuntimeDirectory=zkelectd-%i|' \
	-e 's|systemctl edit zkelectd|&@NAME|'
