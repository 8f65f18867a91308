#!/bin/sh
# Verifies, for each module file of the repository, that the downloaded modules are those in its go.sum and have not been changed
# on this machine.
set -eu
cd "$(dirname "$0")/.."
go mod verify
for file in deploy/package/nfpm.mod deploy/package/vulncheck.mod scripts/lint.mod; do
	go mod verify -modfile="$file"
done
for dir in deploy/check deploy/package/sbom; do
	go -C "$dir" mod verify
done
