#!/bin/sh
# Signs a release with minisign: dist/SHA256SUMS, which lists all other files. KEY is the file with the secret key, for which
# minisign asks for the password. Finally it verifies the signature with the public key in the file PUBLIC.
#
#   minisign -G -p zkelectd.pub -s /safe/place/zkelectd.key     # once
#   KEY=/safe/place/zkelectd.key PUBLIC=zkelectd.pub scripts/sign.sh
set -eu
cd "$(dirname "$0")/.."
out=${DIST:-dist}
: "${KEY:?must be the file with the secret key}" "${PUBLIC:?must be the file with the public key}"
[ -f "$out/SHA256SUMS" ] || { echo "sign: there is no $out/SHA256SUMS: run make dist first" >&2; exit 1; }
command -v minisign >/dev/null 2>&1 || scripts/apt-install.sh "Releases are signed with minisign" minisign
(cd "$out" && sha256sum --check --quiet SHA256SUMS)
version=$(sed -n 's/.*zkelectd_\(.*\)_amd64\.deb$/\1/p' "$out/SHA256SUMS")
minisign -S -s "$KEY" -m "$out/SHA256SUMS" -t "zkelectd $version"
minisign -V -p "$PUBLIC" -m "$out/SHA256SUMS"
