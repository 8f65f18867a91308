#!/bin/sh
# Installs what the tests need besides Go and ZooKeeper: a C compiler for the race detector, curl for the commands in
# docs/http-api.md, nft, with which the fault campaign drops packets, and Python and a Java compiler for the clients of applications.
set -eu

if ! command -v go >/dev/null 2>&1 && [ ! -x /usr/local/go/bin/go ]; then
	echo "Go is missing: install Go 1.26 or newer from https://go.dev/dl/" >&2
	exit 1
fi
PATH=$PATH:/usr/sbin:/sbin
if command -v gcc >/dev/null 2>&1 && command -v curl >/dev/null 2>&1 && command -v nft >/dev/null 2>&1 &&
	command -v python3 >/dev/null 2>&1 && command -v javac >/dev/null 2>&1; then
	exit 0
fi
exec "${0%/*}/apt-install.sh" "The race detector needs a C compiler, tests need curl, nft, Python and a Java compiler" \
	gcc libc6-dev curl nftables python3 default-jdk-headless
