#!/bin/bash
# Installs the packages in a throwaway copy of this machine, an overlay of which every change can be seen, runs what they
# bring, removes them, and looks that nothing is left. Needs root, for the overlay; else it is skipped, and says so.
set -euo pipefail
cd "$(dirname "$0")/.."
skip() { echo "SKIPPED: the packages are not installed anywhere, $*" >&2; exit 0; }
fail() { echo "test-package: $*" >&2; exit 1; }

# has_password: a new one was made, for the service alone.
has_password() {
	local auth=/etc/zkelectd/zookeeper.auth
	[ "$(stat -c '%a %U' $auth)" = "600 zkelectd" ] || fail "$auth is $(stat -c '%a %U' $auth)"
	grep -qxE 'zkelectd:[0-9a-f]{32}' $auth || fail "$auth holds no password"
	[ "$(ls -A /etc/zkelectd)" = zookeeper.auth ] || fail "beside the password there is $(ls -A /etc/zkelectd)"
}

case "${1:-}" in
"")
	command -v dpkg >/dev/null 2>&1 || skip "this is no Debian"
	command -v unshare >/dev/null 2>&1 || skip "there is no unshare (util-linux)"
	ls dist/*.deb >/dev/null 2>&1 || scripts/dist.sh >/dev/null
	sudo=
	[ "$(id -u)" -eq 0 ] || sudo="sudo -n"
	$sudo unshare --mount true 2>/dev/null || skip "there is no right to mount"
	exec $sudo unshare --mount --propagation private scripts/test-package.sh outside
	;;
outside) # in mounts of our own, which end with this process
	arch=$(dpkg --print-architecture)
	work=$(mktemp -d)
	trap 'umount -R -l "$work" 2>/dev/null; rmdir "$work"' EXIT
	mount -t tmpfs -o mode=0755 none "$work"
	mkdir "$work/upper" "$work/work" "$work/root"
	mount -t overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/work" none "$work/root" 2>/dev/null || skip "the kernel mounts no overlay here"
	for dir in proc dev sys; do mount --rbind "/$dir" "$work/root/$dir"; done
	mount -t tmpfs none "$work/root/tmp"
	mount -t tmpfs none "$work/root/run" # so that no service manager is told anything
	mkdir "$work/root/run/packages"
	cp dist/*_"$arch".deb "$work/root/run/packages/package.deb"
	cp "dist/"*."$(uname -m)".rpm "$work/root/run/packages/package.rpm"
	cp dist/zkelectd-linux-arm64 "$work/root/run/packages/arm64"
	cp scripts/test-package.sh "$work/root/run/packages/test.sh"
	chroot "$work/root" /run/packages/test.sh deb
	# What remains is the user, and what the package manager keeps for itself.
	left=$(cd "$work/upper" && find . ! -type d \
		! -path './var/lib/dpkg/*' ! -path './var/log/*' ! -path './var/cache/*' ! -path './var/lib/systemd/*' \
		! -path './etc/passwd*' ! -path './etc/group*' ! -path './etc/shadow*' ! -path './etc/gshadow*' ! -path './etc/.pwd.lock' \
		! -path './etc/subuid*' ! -path './etc/subgid*')
	named=$(cd "$work/upper" && find . -name '*zkelectd*' ! -type c)
	[ -z "$left$named" ] || fail "this is left: $left $named"
	echo "the .deb is installed, runs, and is removed without a trace"
	chroot "$work/root" /run/packages/test.sh rpm
	;;
deb)
	# A slim Debian may leave documentation out.
	dpkg --path-include='/usr/share/*' --install /run/packages/package.deb >/dev/null
	for f in $(dpkg -L zkelectd); do [ -e "$f" ] || fail "$f is not installed"; done
	zkelectd version
	zkelectd check --offline --config /usr/share/doc/zkelectd/examples/zkelectd.yaml >/dev/null
	for said in "Apache License" github.com/go-zookeeper/zk "The Go Authors"; do
		grep -q "$said" /usr/share/doc/zkelectd/copyright || fail "the copyright does not speak of $said"
	done
	getent passwd zkelectd >/dev/null || fail "there is no user zkelectd"
	[ "$(stat -c '%a %U:%G' /etc/zkelectd)" = "750 root:zkelectd" ] || fail "/etc/zkelectd is $(stat -c '%a %U:%G' /etc/zkelectd)"
	has_password
	made=$(cat /etc/zkelectd/zookeeper.auth)
	dpkg --path-include='/usr/share/*' --install /run/packages/package.deb >/dev/null # as an upgrade does
	[ "$(cat /etc/zkelectd/zookeeper.auth)" = "$made" ] || fail "an upgrade makes another password"
	setpriv --reuid zkelectd --regid zkelectd --init-groups zkelectd check --zk 127.0.0.1:1 --connect-timeout 100ms \
		--config /usr/share/doc/zkelectd/examples/zkelectd.yaml | grep -q 'acl: private' || fail "the service cannot use the password"
	gzip -dc /usr/share/man/man1/zkelectd-run.1.gz | grep -q 'the host name' || fail "the manual of run is odd"
	if gzip -dc /usr/share/man/man1/*zkelectd*.gz | grep -q "default $(hostname))"; then fail "the manual names this host"; fi
	bash -c '. /usr/share/bash-completion/completions/zkelectd && complete -p zkelectd' >/dev/null || fail "bash does not complete"
	if command -v systemd-analyze >/dev/null 2>&1; then
		said=$(systemd-analyze verify --man=no zkelectd.service zkelectd@g1.service 2>&1) || fail "$said"
		if grep -q zkelectd <<<"$said"; then fail "$said"; fi
	fi
	dpkg --purge zkelectd >/dev/null
	;;
rpm)
	export DEBIAN_FRONTEND=noninteractive
	{ apt-get update -qq && apt-get install -y -qq --no-install-recommends rpm zsh fish qemu-user-static; } >/dev/null 2>&1 ||
		{ echo "SKIPPED: the .rpm is not installed anywhere, rpm, shells and an emulator cannot be had" >&2; exit 0; }
	# Of the dependencies Debian's rpm knows nothing.
	rpm --install --nodeps /run/packages/package.rpm
	zkelectd version >/dev/null
	has_password
	fish -c 'complete -C "zkelectd mo"' | grep -q '^move' || fail "fish does not complete"
	zsh -fc 'autoload -Uz compinit && fpath=(/usr/share/zsh/site-functions $fpath) && compinit -u -D && [ "$_comps[zkelectd]" = _zkelectd ]' ||
		fail "zsh does not complete"
	qemu-aarch64-static /run/packages/arm64 check --offline --config /usr/share/doc/zkelectd/examples/zkelectd.yaml >/dev/null ||
		fail "the binary for arm64 does not run"
	# As packed, but for what the tmpfiles have set.
	said=$(rpm --verify --nodeps zkelectd | grep -v ' /etc/zkelectd$' || true)
	[ -z "$said" ] || fail "the .rpm is not as packed: $said"
	rpm --erase --nodeps zkelectd
	if [ -e /usr/bin/zkelectd ] || [ -e /etc/zkelectd ]; then fail "the .rpm leaves something behind"; fi
	echo "the .rpm is installed, runs, completes in zsh and fish, and is removed; the binary for arm64 runs"
	;;
esac
