#!/bin/bash
# Builds a release of the last commit twice, in environments that differ as much as possible, and compares the files: users can
# build a reproducible package themselves, and need not trust the one who published it.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone -q . "$work/one"
git clone -q . "$work/somewhere-else"
(cd "$work/one" && scripts/dist.sh >/dev/null)
(cd "$work/somewhere-else" && umask 077 && env -u GOFLAGS TZ=Pacific/Auckland HOME="$work" HOSTNAME=other GOCACHE="$(go env GOCACHE)" \
	GOMODCACHE="$(go env GOMODCACHE)" scripts/dist.sh >/dev/null)
if ! diff "$work/one/dist/SHA256SUMS" "$work/somewhere-else/dist/SHA256SUMS"; then
	echo "two builds of the same commit differ" >&2
	exit 1
fi
echo "two builds of the same commit are identical:"
cat "$work/one/dist/SHA256SUMS"
if [ "${1:-}" = --keep ]; then
	rm -rf dist
	mv "$work/one/dist" dist
fi
