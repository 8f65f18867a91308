#!/bin/sh
# Makes signed repositories for apt and dnf from the packages in dist/: dist/repo/apt, dist/repo/dnf, and dist/repo/zkelectd.asc, the
# public key. KEY is the user or the fingerprint of a secret key of gpg, which asks for its password. docs/security.md says how hosts
# use them.
#
#   KEY=0123456789ABCDEF0123456789ABCDEF01234567 scripts/repo.sh
set -eu
cd "$(dirname "$0")/.."
umask 022
export LC_ALL=C
out=${DIST:-dist}
: "${KEY:?must name a secret key of gpg, as in \"gpg --list-secret-keys\"}"
ls "$out"/*.deb "$out"/*.rpm >/dev/null 2>&1 || { echo "repo: there are no packages in $out: run make dist first" >&2; exit 1; }
for program in apt-ftparchive createrepo_c gpg; do
	command -v $program >/dev/null 2>&1 ||
		scripts/apt-install.sh "Repositories are made with apt-ftparchive and createrepo_c, and signed with gpg" apt-utils createrepo-c gpg
done
(cd "$out" && sha256sum --check --quiet --ignore-missing SHA256SUMS)

repo=$out/repo
rm -rf "$repo"
mkdir -p "$repo/apt/pool" "$repo/dnf"
cp "$out"/*.deb "$repo/apt/pool/"
cp "$out"/*.rpm "$repo/dnf/"
gpg --batch --armor --export "$KEY" >"$repo/zkelectd.asc"
[ -s "$repo/zkelectd.asc" ] || { echo "repo: gpg has no key $KEY" >&2; exit 1; }

cd "$repo/apt"
archs=
for deb in pool/*.deb; do archs="$archs $(dpkg-deb --field "$deb" Architecture)"; done
for arch in $archs; do
	mkdir -p "dists/stable/main/binary-$arch"
	apt-ftparchive --arch "$arch" packages pool >"dists/stable/main/binary-$arch/Packages"
	gzip -9nk "dists/stable/main/binary-$arch/Packages"
done
apt-ftparchive -o APT::FTPArchive::Release::Origin=zkelectd -o APT::FTPArchive::Release::Label=zkelectd \
	-o APT::FTPArchive::Release::Suite=stable -o APT::FTPArchive::Release::Codename=stable \
	-o APT::FTPArchive::Release::Components=main -o "APT::FTPArchive::Release::Architectures=${archs# }" \
	release dists/stable >Release.new
mv Release.new dists/stable/Release
gpg --batch --yes --local-user "$KEY" --armor --detach-sign --output dists/stable/Release.gpg dists/stable/Release
gpg --batch --yes --local-user "$KEY" --clearsign --output dists/stable/InRelease dists/stable/Release

cd ../dnf
createrepo_c --quiet .
gpg --batch --yes --local-user "$KEY" --armor --detach-sign --output repodata/repomd.xml.asc repodata/repomd.xml
