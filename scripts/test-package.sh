#!/bin/bash
# Installs the packages in a throwaway copy of this machine (an overlay, in which every change is visible), runs their contents,
# removes them, and checks that nothing is left. It needs root for the overlay; otherwise the test is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
skip() { echo "SKIPPED: the packages are not tested, since $*" >&2; exit 0; }
fail() { echo "test-package: $*" >&2; exit 1; }

# has_password checks that a password was generated that only the service can read.
has_password() {
	local auth=/etc/zkelectd/zookeeper.auth
	[ "$(stat -c '%a %U' $auth)" = "600 zkelectd" ] || fail "$auth is $(stat -c '%a %U' $auth)"
	grep -qxE 'zkelectd:[0-9a-f]{32}' $auth || fail "$auth contains no password"
	[ "$(ls -A /etc/zkelectd)" = zookeeper.auth ] || fail "besides the password there is $(ls -A /etc/zkelectd)"
}

case "${1:-}" in
"")
	command -v dpkg >/dev/null 2>&1 || skip "this is not Debian"
	command -v unshare >/dev/null 2>&1 || skip "there is no unshare (util-linux)"
	ls dist/*.deb >/dev/null 2>&1 || scripts/dist.sh >/dev/null
	sudo=
	[ "$(id -u)" -eq 0 ] || sudo="sudo -n"
	$sudo unshare --mount true 2>/dev/null || skip "mounting is not permitted"
	exec $sudo unshare --mount --propagation private scripts/test-package.sh outside
	;;
outside) # in a mount namespace, whose mounts end with this process
	arch=$(dpkg --print-architecture)
	work=$(mktemp -d)
	trap 'umount -R -l "$work" 2>/dev/null; rmdir "$work"' EXIT
	mount -t tmpfs -o mode=0755 none "$work"
	mkdir "$work/upper" "$work/work" "$work/root"
	mount -t overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/work" none "$work/root" 2>/dev/null || skip "the kernel cannot mount an overlay here"
	for dir in proc dev sys; do mount --rbind "/$dir" "$work/root/$dir"; done
	mount -t tmpfs none "$work/root/tmp"
	mount -t tmpfs none "$work/root/run" # so that the package scripts find no service manager
	mkdir "$work/root/run/packages"
	cp dist/*_"$arch".deb "$work/root/run/packages/package.deb"
	scripts/test-repo.sh "$work/root/run/packages/repo"
	cp "dist/"*."$(uname -m)".rpm "$work/root/run/packages/package.rpm"
	cp dist/zkelectd-linux-arm64 "$work/root/run/packages/arm64"
	cp scripts/test-package.sh "$work/root/run/packages/test.sh"
	chroot "$work/root" /run/packages/test.sh deb
	# Only the user and the package manager's own files may remain.
	left=$(cd "$work/upper" && find . ! -type d \
		! -path './var/lib/dpkg/*' ! -path './var/lib/apt/*' ! -path './var/lib/swcatalog/*' ! -path './var/log/*' ! -path './var/cache/*' ! -path './var/lib/systemd/*' \
		! -path './etc/passwd*' ! -path './etc/group*' ! -path './etc/shadow*' ! -path './etc/gshadow*' ! -path './etc/.pwd.lock' \
		! -path './etc/subuid*' ! -path './etc/subgid*')
	named=$(cd "$work/upper" && find . -name '*zkelectd*' ! -type c)
	[ -z "$left$named" ] || fail "these files are left: $left $named"
	echo "the .deb can be installed, run and removed, and leaves nothing"
	chroot "$work/root" /run/packages/test.sh rpm
	;;
deb)
	# A slim Debian may be configured not to install documentation.
	echo "deb [signed-by=/run/packages/repo/zkelectd.asc] file:/run/packages/repo/apt stable main" >/run/packages/sources
	local_only=(-qq -o Dir::Etc::sourcelist=/run/packages/sources -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=root)
	{ apt-get "${local_only[@]}" update &&
		DEBIAN_FRONTEND=noninteractive apt-get "${local_only[@]}" -o DPkg::Options::='--path-include=/usr/share/*' \
			install -y --no-install-recommends zkelectd; } >/dev/null || fail "apt cannot install the package from the repository"
	for f in $(dpkg -L zkelectd); do [ -e "$f" ] || fail "$f is not installed"; done
	zkelectd --version
	zkelectd check --offline --config /usr/share/doc/zkelectd/examples/zkelectd.yaml >/dev/null
	ZKELECTD_GROUPS_DIR=/usr/share/doc/zkelectd/examples/groups.d zkelectd check --offline --config /usr/share/doc/zkelectd/examples/groups.yaml >/dev/null
	for text in "Apache License" github.com/go-zookeeper/zk "The Go Authors"; do
		grep -q "$text" /usr/share/doc/zkelectd/copyright || fail "the copyright does not mention $text"
	done
	getent passwd zkelectd >/dev/null || fail "there is no user zkelectd"
	for dir in /etc/zkelectd /etc/zkelectd.d; do
		[ "$(stat -c '%a %U:%G' $dir)" = "750 root:zkelectd" ] || fail "$dir is $(stat -c '%a %U:%G' $dir)"
	done
	[ -z "$(ls -A /etc/zkelectd.d)" ] || fail "the package contains groups: $(ls -A /etc/zkelectd.d)"
	has_password
	password=$(cat /etc/zkelectd/zookeeper.auth)
	install -m 0600 /dev/null /etc/zkelectd.d/mine.yaml
	install -m 0600 -o nobody /dev/null /etc/zkelectd.d/theirs.yaml
	dpkg --path-include='/usr/share/*' --install /run/packages/package.deb >/dev/null # like an upgrade
	[ "$(cat /etc/zkelectd/zookeeper.auth)" = "$password" ] || fail "an upgrade changes the password"
	owners=$(stat -c '%a %U:%G' /etc/zkelectd.d/mine.yaml /etc/zkelectd.d/theirs.yaml | tr '\n' ' ')
	[ "$owners" = "640 root:zkelectd 640 nobody:zkelectd " ] || fail "an upgrade gives the groups the modes and owners $owners"
	rm /etc/zkelectd.d/*.yaml
	install -m 0640 -g zkelectd /usr/share/doc/zkelectd/examples/groups.d/*.yaml /etc/zkelectd.d/
	setpriv --reuid zkelectd --regid zkelectd --init-groups zkelectd check --offline --config /usr/share/doc/zkelectd/examples/groups.yaml |
		grep '^billing  /zkelectd/billing$' >/dev/null || fail "the service cannot read the files of the groups"
	rm /etc/zkelectd.d/*.yaml
	sed 's/127\.0\.0\.1:2181/127.0.0.1:1/' /usr/share/doc/zkelectd/examples/zkelectd.yaml >/run/unreachable.yaml
	setpriv --reuid zkelectd --regid zkelectd --init-groups zkelectd check --print --connect-timeout 100ms \
		--config /run/unreachable.yaml -- true | grep 'acl: private' >/dev/null || fail "the service cannot use the password"
	gzip -dc /usr/share/man/man1/zkelectd-run.1.gz | grep -q 'the host name' || fail "the manual of run is wrong"
	gzip -dc /usr/share/man/man5/zkelectd.yaml.5.gz | grep -qF '\fBzookeeper.servers\fP' || fail "the manual of the configuration is wrong"
	for page in zkelectd zkelectd-run; do
		gzip -dc "/usr/share/man/man1/$page.1.gz" | tail -n 1 | grep -qF 'zkelectd.yaml(5)' || fail "the page $page does not name zkelectd.yaml(5)"
	done
	if gzip -dc /usr/share/man/man1/*zkelectd*.gz | grep -q "default $(hostname))"; then fail "the manual contains the name of this host"; fi
	bash -c '. /usr/share/bash-completion/completions/zkelectd && complete -p zkelectd' >/dev/null || fail "completion does not work in bash"
	if command -v systemd-analyze >/dev/null 2>&1; then
		output=$(systemd-analyze verify --man=no zkelectd.service zkelectd@g1.service 2>&1) || fail "$output"
		if grep -q zkelectd <<<"$output"; then fail "$output"; fi
	fi
	dpkg --purge zkelectd >/dev/null
	;;
rpm)
	export DEBIAN_FRONTEND=noninteractive
	{ apt-get update -qq && apt-get install -y -qq --no-install-recommends rpm zsh fish qemu-user-static; } >/dev/null 2>&1 ||
		{ echo "SKIPPED: the .rpm is not tested, since rpm, shells and an emulator cannot be installed" >&2; exit 0; }
	# Debian's rpm does not know the dependencies.
	if apt-get install -y -qq --no-install-recommends dnf >/dev/null 2>&1; then
		printf '[zkelectd]\nname=zkelectd\nbaseurl=file:///run/packages/repo/dnf\nrepo_gpgcheck=1\ngpgcheck=0\n%s\n' \
			gpgkey=file:///run/packages/repo/zkelectd.asc >/run/packages/zkelectd.repo
		dnf -q -y --setopt=reposdir=/run/packages --forcearch="$(uname -m)" makecache >/dev/null || fail "dnf refuses the repository"
		dnf -q --setopt=reposdir=/run/packages list zkelectd | grep zkelectd >/dev/null || fail "dnf does not find the package in the repository"
	else
		echo "SKIPPED: the repository is not tested with dnf, which cannot be installed" >&2
	fi
	rpm --install --nodeps /run/packages/package.rpm
	zkelectd --version >/dev/null
	has_password
	fish -c 'complete -C "zkelectd mo"' | grep -q '^move' || fail "completion does not work in fish"
	zsh -fc 'autoload -Uz compinit && fpath=(/usr/share/zsh/site-functions $fpath) && compinit -u -D && [ "$_comps[zkelectd]" = _zkelectd ]' ||
		fail "completion does not work in zsh"
	qemu-aarch64-static /run/packages/arm64 check --offline --config /usr/share/doc/zkelectd/examples/zkelectd.yaml >/dev/null ||
		fail "the binary for arm64 does not run"
	# All files are as packed, except for the mode that tmpfiles.d sets.
	changed=$(rpm --verify --nodeps zkelectd | grep -v ' /etc/zkelectd\(\.d\)\?$' || true)
	[ -z "$changed" ] || fail "these files differ from the .rpm: $changed"
	rpm --erase --nodeps zkelectd
	if [ -e /usr/bin/zkelectd ] || [ -e /etc/zkelectd ] || [ -e /etc/zkelectd.d ]; then fail "the .rpm leaves files behind"; fi
	echo "the .rpm can be installed, run and removed, with completion in zsh and fish; the binary for arm64 runs"
	;;
esac
