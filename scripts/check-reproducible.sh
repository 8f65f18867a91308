#!/bin/bash
# Makes everything of the last commit twice, as differently as one machine can, and compares: a package that anybody can
# make again needs no trust in who made it.
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
	echo "the same commit gives different files" >&2
	exit 1
fi
echo "made twice, the same bytes:"
cat "$work/one/dist/SHA256SUMS"
if [ "${1:-}" = --keep ]; then
	rm -rf dist
	mv "$work/one/dist" dist
fi
