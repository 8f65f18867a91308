#!/bin/sh
# Makes sure that what is compiled are the modules that go.sum names, for each module file of the repository: nobody has
# changed them on this machine since they were fetched.
set -eu
cd "$(dirname "$0")/.."
go mod verify
for file in deploy/package/nfpm.mod deploy/package/vulncheck.mod scripts/lint.mod; do
	go mod verify -modfile="$file"
done
for dir in deploy/check deploy/package/sbom; do
	go -C "$dir" mod verify
done
