#!/bin/bash
# Makes the repositories of the packages in $DIST (default: dist), with a generated key, in $1, and checks that apt takes the package
# from there, and refuses a list that was changed and another key. It changes nothing on this host.
set -euo pipefail
cd "$(dirname "$0")/.."
to=${1:-}
work=$(mktemp -d)
trap 'gpgconf --homedir "$work/gnupg" --kill all 2>/dev/null || true; rm -rf "$work"' EXIT
fail() { echo "test-repo: $*" >&2; exit 1; }
export GNUPGHOME=$work/gnupg
mkdir -m 0700 "$GNUPGHOME"
for user in release other; do
	gpg --batch --quiet --passphrase '' --quick-generate-key "$user" ed25519 sign never 2>/dev/null
done
mkdir "$work/dist"
cp "${DIST:-dist}"/*.deb "${DIST:-dist}"/*.rpm "${DIST:-dist}/SHA256SUMS" "$work/dist/"
DIST=$work/dist KEY=release scripts/repo.sh
repo=$work/dist/repo
gpg --batch --armor --export other >"$work/other.asc"

# seen reports whether apt, with a key, finds the package.
seen() {
	rm -rf "$work/apt"
	mkdir -p "$work/apt/lists/partial" "$work/apt/cache/archives/partial"
	echo "deb [signed-by=$1] file:$repo/apt stable main" >"$work/apt/sources"
	: >"$work/apt/status"
	local options=(-o Dir::Etc::sourcelist="$work/apt/sources" -o Dir::Etc::sourceparts=- -o Dir::State::Lists="$work/apt/lists"
		-o Dir::Cache="$work/apt/cache" -o Dir::State::status="$work/apt/status" -o APT::Sandbox::User="$(id -un)" -o Debug::NoLocking=1)
	apt-get -qq "${options[@]}" update >/dev/null 2>&1 && apt-cache "${options[@]}" policy zkelectd | grep 'Candidate: [0-9]' >/dev/null
}
seen "$repo/zkelectd.asc" || fail "apt does not find the package"
if seen "$work/other.asc"; then fail "apt takes the key of somebody else"; fi
gpg --batch --quiet --import "$repo/zkelectd.asc"
gpg --batch --quiet --verify "$repo/dnf/repodata/repomd.xml.asc" "$repo/dnf/repodata/repomd.xml" 2>/dev/null || fail "the signature for dnf is wrong"
grep -q 'href="zkelectd.*\.rpm"' <(gzip -dc "$repo"/dnf/repodata/*primary.xml.gz) || fail "the list for dnf has no package"
[ -z "$to" ] || cp -r "$repo" "$to"
list=$(echo "$repo"/apt/dists/stable/main/binary-*/Packages)
for f in $list; do sed -i 's/^Version: /Version: 9/' "$f"; gzip -9nkf "$f"; done
if seen "$repo/zkelectd.asc"; then fail "apt takes a list that was changed"; fi
echo "the repositories are signed, and every change is detected"
