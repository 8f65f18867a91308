#!/bin/sh
# The user stays, since files may belong to it; and so do configurations that the package has not brought.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
