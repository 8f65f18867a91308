#!/bin/sh
# Builds the binaries, packages and SBOMs (software bills of materials) of a commit in $DIST (default: dist), for $ARCHS (default:
# amd64 arm64), as $KINDS of packages (default: deb rpm). The same commit gives
# the same bytes on any machine, in any directory, with any time zone and umask: see scripts/check-reproducible.sh.
set -eu
cd "$(dirname "$0")/.."
umask 022
command -v git >/dev/null 2>&1 || { echo "git is missing: it provides the version and the date" >&2; exit 1; }
export LC_ALL=C TZ=UTC CGO_ENABLED=0 GOFLAGS=-trimpath GOWORK=off
out=${DIST:-dist}
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
if [ -z "${VERSION:-}" ]; then
	# The version of a tag v1.2.3, or one by date, which sorts before every release.
	VERSION=$(git describe --tags --exact-match --match 'v[0-9]*' 2>/dev/null | sed 's/^v//') || true
	[ -n "$VERSION" ] || VERSION="0.0.0~git$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S).$(git rev-parse --short=8 HEAD)"
fi
if [ -n "$(git status --porcelain --untracked-files=no)" ]; then
	echo "the tree has uncommitted changes: they are in the files, but not in their version" >&2
fi
export SOURCE_DATE_EPOCH VERSION

rm -rf "$out"
stage=$out/stage
mkdir -p "$stage/completions"
go run -tags gen ./cmd/zkelectd gen man "$stage/man"
go run ./cmd/zkelectd completion bash >"$stage/completions/zkelectd.bash"
go run ./cmd/zkelectd completion zsh >"$stage/completions/_zkelectd"
go run ./cmd/zkelectd completion fish >"$stage/completions/zkelectd.fish"
gzip -9n "$stage"/man/*
scripts/licenses.sh >"$stage/copyright"
go -C deploy/package/sbom build -o "$(realpath "$stage")/sbom" .
nfpm=$(go tool -n -modfile=deploy/package/nfpm.mod nfpm)
for ARCH in ${ARCHS:-amd64 arm64}; do
	STAGE=$out/stage/$ARCH
	export ARCH STAGE
	mkdir -p "$STAGE"
	GOARCH=$ARCH GOOS=linux go build -ldflags='-s -w -buildid=' -o "$STAGE/zkelectd" ./cmd/zkelectd
	cp "$STAGE/zkelectd" "$out/zkelectd-linux-$ARCH"
	"$stage/sbom" "$out/zkelectd-linux-$ARCH" "$VERSION" "$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)" >"$out/zkelectd-linux-$ARCH.cdx.json"
	ln -s ../man "$STAGE/man"
	ln -s ../completions "$STAGE/completions"
	cp "$stage/copyright" "$STAGE/copyright" # a link would be packaged as a link
	for kind in ${KINDS:-deb rpm}; do
		log=$("$nfpm" package --config deploy/package/nfpm.yaml --packager "$kind" --target "$out/") || { echo "$log" >&2; exit 1; }
	done
done
rm -rf "$stage"
cd "$out"
sha256sum -- * >SHA256SUMS
cat SHA256SUMS
