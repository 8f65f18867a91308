#!/bin/sh
# Installs what the tests need besides Go and ZooKeeper: a C compiler for the race detector, curl for the commands in
# docs/http-api.md, and nft, with which the fault campaign drops packets.
set -eu

if ! command -v go >/dev/null 2>&1 && [ ! -x /usr/local/go/bin/go ]; then
	echo "Go is missing: install Go 1.26 or newer from https://go.dev/dl/" >&2
	exit 1
fi
PATH=$PATH:/usr/sbin:/sbin
if command -v gcc >/dev/null 2>&1 && command -v curl >/dev/null 2>&1 && command -v nft >/dev/null 2>&1; then
	exit 0
fi
exec "${0%/*}/apt-install.sh" "The race detector needs a C compiler, a test curl, and the fault campaign nft" gcc libc6-dev curl nftables
