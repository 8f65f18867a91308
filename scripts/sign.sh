#!/bin/sh
# Signs a release: dist/SHA256SUMS, which names everything else, with minisign. KEY is the secret key's file; minisign asks
# for its password. It checks the signature with the public key PUBLIC before it is done.
#
#   minisign -G -p zkelectd.pub -s /safe/place/zkelectd.key     # once
#   KEY=/safe/place/zkelectd.key PUBLIC=zkelectd.pub scripts/sign.sh
set -eu
cd "$(dirname "$0")/.."
out=${DIST:-dist}
: "${KEY:?is the file of the secret key}" "${PUBLIC:?is the file of the public key}"
[ -f "$out/SHA256SUMS" ] || { echo "sign: there is no $out/SHA256SUMS: run make dist first" >&2; exit 1; }
command -v minisign >/dev/null 2>&1 || scripts/apt-install.sh "Releases are signed with minisign" minisign
(cd "$out" && sha256sum --check --quiet SHA256SUMS)
version=$(sed -n 's/.*zkelectd_\(.*\)_amd64\.deb$/\1/p' "$out/SHA256SUMS")
minisign -S -s "$KEY" -m "$out/SHA256SUMS" -t "zkelectd $version"
minisign -V -p "$PUBLIC" -m "$out/SHA256SUMS"
