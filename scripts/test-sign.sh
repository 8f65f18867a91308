#!/bin/bash
# Signs a release with a generated key and verifies it as docs/security.md describes: a changed file, a changed list and another
# key must be detected.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
command -v minisign >/dev/null 2>&1 || scripts/apt-install.sh "Releases are signed with minisign" minisign
minisign -G -W -f -p "$work/zkelectd.pub" -s "$work/zkelectd.key" >/dev/null
minisign -G -W -f -p "$work/other.pub" -s "$work/other.key" >/dev/null
mkdir "$work/dist"
echo binary >"$work/dist/zkelectd_1.2.3_amd64.deb"
(cd "$work/dist" && sha256sum -- * >../SHA256SUMS && mv ../SHA256SUMS .)
DIST=$work/dist KEY=$work/zkelectd.key PUBLIC=$work/zkelectd.pub scripts/sign.sh >/dev/null
check() { (cd "$work/dist" && minisign -q -V -p "$1" -m SHA256SUMS && sha256sum --check --quiet SHA256SUMS) >/dev/null 2>&1; }
must_fail() { if check "$2"; then echo "not detected: $1" >&2; exit 1; fi; }
check "$work/zkelectd.pub" || { echo "the signature of an unchanged release is refused" >&2; exit 1; }
must_fail "another key" "$work/other.pub"
echo other >"$work/dist/zkelectd_1.2.3_amd64.deb"
must_fail "a changed file" "$work/zkelectd.pub"
(cd "$work/dist" && sha256sum -- *.deb >SHA256SUMS)
must_fail "a changed list" "$work/zkelectd.pub"
echo "the signature is valid, and every change is detected"
