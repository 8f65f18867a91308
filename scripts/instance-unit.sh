#!/bin/sh
# Generates zkelectd@.service, which runs one group by itself, from zkelectd.service.
cat <<'H'
# For a group that is isolated from the others of this host: zkelectd@NAME reads /etc/zkelectd/NAME.yaml. zkelectd.service is for
# all others. Generated from zkelectd.service by scripts/instance-unit.sh.
#
# The leader-only child is part of this service and subject to its restrictions. Permit what the child needs in a drop-in
# (systemctl edit zkelectd@NAME), for example with ReadWritePaths=/var/lib/app.
H
exec sed -n -e 's|^Description=.*|Description=zkelectd, leader election for this host in %i|' \
	-e 's|/etc/zkelectd\.yaml|/etc/zkelectd/%i.yaml|' \
	-e 's|/etc/zkelectd/zookeeper\.auth|/etc/zkelectd/%i.auth|' \
	-e 's|^RuntimeDirectory=.*|RuntimeDirectory=zkelectd-%i|' \
	-e 's|^StateDirectory=.*|StateDirectory=zkelectd-%i|' \
	-e '/^\[Unit\]/,$p'
