#!/bin/bash
# Boots a real systemd in a throwaway copy of this machine (an overlay with its own namespaces, network and control group),
# installs the package there, and tests the units with a real ZooKeeper: start, reload, refused reload, kill, frozen guard, stop;
# and the same with units as the leader-only work. It needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
skip() { echo "SKIPPED: the units are not tested, since $*" >&2; exit 0; }
limit=600

case "${1:-}" in
"")
	scripts/check-units.sh >/dev/null # installs systemd, if need be
	scripts/install-dbus.sh
	scripts/install-zookeeper.sh
	[ -x /lib/systemd/systemd ] || skip "there is no systemd"
	sudo=
	[ "$(id -u)" -eq 0 ] || sudo="sudo -n"
	$sudo unshare --mount --pid --fork true 2>/dev/null || skip "creating namespaces is not permitted"
	ls dist/*.deb >/dev/null 2>&1 || scripts/dist.sh >/dev/null
	exec $sudo scripts/test-systemd.sh group
	;;
group) # the guest gets its own control group hierarchy
	cgroups=$(findmnt --noheadings --types cgroup2 --output TARGET --first-only) || skip "there is no cgroup2 hierarchy"
	group=$cgroups/zkelectd-test-$$
	mkdir "$group" 2>/dev/null || skip "creating control groups is not permitted"
	console=$(mktemp)
	mkdir "$console.root"
	trap 'for i in 1 2 3 4 5; do find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null || true; done; rm -f "$console" "$console.boot"; rmdir "$console.root"' EXIT
	(echo "$BASHPID" >"$group/cgroup.procs" && exec timeout --signal=KILL "$limit" unshare --mount --propagation private --net --pid --fork --uts --ipc --cgroup \
		--kill-child scripts/test-systemd.sh boot "$console") >"$console.boot" 2>&1 || true
	if grep -q '^no overlay$' "$console"; then skip "the kernel cannot mount an overlay here"; fi
	cat "$console"
	if ! grep -q '^all tests passed$' "$console"; then
		tail -n 5 "$console.boot" >&2
		echo "test-systemd: a test failed, see above" >&2
		exit 1
	fi
	;;
boot) # process 1 of the PID namespace, which becomes systemd
	root=$2.root
	mount -t tmpfs -o mode=0755 none "$root"
	mkdir "$root/upper" "$root/work" "$root/root"
	mount -t overlay -o "lowerdir=/,upperdir=$root/upper,workdir=$root/work" none "$root/root" 2>/dev/null || {
		echo "no overlay" >"$2"
		exit
	}
	deb=$(ls "$PWD"/dist/*_"$(dpkg --print-architecture)".deb)
	script=$PWD/scripts/systemd-guest.sh
	cd "$root/root"
	mount -t proc proc proc
	mount --bind /dev dev
	mount --bind "$2" dev/console # the output of the guest
	mount -t tmpfs none dev/shm
	mount -t sysfs -o ro sysfs sys
	mount -t cgroup2 cgroup2 sys/fs/cgroup
	mount -t tmpfs -o mode=755 none run
	mount -t tmpfs -o mode=1777 none tmp
	cp "$deb" run/package.deb
	cp "$script" run/guest.sh
	cp "${script%.sh}-unit.sh" run/guest-unit.sh
	# None of the machine's own units may start, in particular none that would change the kernel's state.
	rm -rf etc/systemd/system/*.wants lib/systemd/system/*.target.wants
	mkdir -p run/systemd/system run/old
	printf '[Unit]\nDescription=There is a network\n' >run/systemd/system/network-online.target
	printf '[Unit]\nDefaultDependencies=no\nWants=guest.service\n' >run/systemd/system/guest.target
	printf '[Unit]\nDefaultDependencies=no\n[Service]\nExecStart=/bin/bash /run/guest.sh\nStandardOutput=append:/dev/console\nStandardError=append:/dev/console\n' \
		>run/systemd/system/guest.service
	echo 0123456789abcdef0123456789abcdef >etc/machine-id
	pivot_root . run/old
	umount -l /run/old
	mount --make-rshared / # as on a booted system; systemd does not do it in a container
	export container=zkelectd-test
	exec chroot . /lib/systemd/systemd --system --unit=guest.target --show-status=no
	;;
esac
