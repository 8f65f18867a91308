#!/bin/sh
# Installs QEMU, and extracts Debian's kernel and busybox, without installing them, into the directory that it prints. make vm-test
# needs them.
set -eu
dir=${XDG_CACHE_HOME:-$HOME/.cache}/zkelectd-vm
command -v qemu-system-x86_64 >/dev/null 2>&1 || "${0%/*}/apt-install.sh" "QEMU is missing" qemu-system-x86 seabios >&2
if ! ls "$dir"/boot/vmlinuz-* >/dev/null 2>&1 || ! [ -x "$dir/bin/busybox" ]; then
	kernel=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*-amd64\).*/\1/p' | head -n 1)
	[ -n "$kernel" ] || {
		echo "there is no package linux-image-amd64: run apt-get update" >&2
		exit 1
	}
	mkdir -p "$dir"
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	(cd "$work" && apt-get -qq -o APT::Sandbox::User=root download "$kernel" busybox-static >/dev/null) || {
		echo "cannot download $kernel and busybox-static" >&2
		exit 1
	}
	for deb in "$work"/*.deb; do dpkg-deb --extract "$deb" "$dir"; done
fi
echo "$dir"
