#!/bin/sh
# Has systemd read the units: nothing in them may be unknown to it, and what they leave open must stay below 2.0 of 10.
set -eu
cd "$(dirname "$0")/.."

if ! command -v systemd-analyze >/dev/null 2>&1; then
	scripts/apt-install.sh "SKIPPED: the units are not checked, there is no systemd-analyze" systemd || exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# One unit is written by hand, and the other must follow it.
scripts/instance-unit.sh <deploy/systemd/zkelectd.service >"$work/zkelectd@.service"
diff -u deploy/systemd/zkelectd@.service "$work/zkelectd@.service" >&2 || {
	echo "deploy/systemd/zkelectd@.service is not scripts/instance-unit.sh <deploy/systemd/zkelectd.service" >&2
	exit 1
}

# The program need not be installed here, nor its manual.
for unit in zkelectd.service zkelectd@.service; do
	sed -e "s|/usr/bin/zkelectd|/bin/true|; s|man:zkelectd(1) ||" "deploy/systemd/$unit" >"$work/$unit"
done
# A unit as the leader-only work, with its drop-in.
printf '[Service]\nExecStart=/bin/true\n' >"$work/app.service"
mkdir "$work/app.service.d"
sed -e "s|/usr/bin/zkelectd|/bin/true|" deploy/systemd/app.service.d/zkelectd.conf >"$work/app.service.d/zkelectd.conf"
said=$(systemd-analyze verify "$work/app.service" 2>&1) || { echo "$said" >&2; exit 1; }
if echo "$said" | grep -q 'app.service\|zkelectd'; then
	echo "$said" >&2
	exit 1
fi
for unit in "$work/zkelectd.service" "$work/zkelectd@g1.service"; do
	[ -e "$unit" ] || cp "$work/zkelectd@.service" "$unit"
	# It complains about what it does not know and still succeeds, so anything it says of ours is a failure.
	said=$(systemd-analyze verify "$unit" 2>&1) || { echo "$said" >&2; exit 1; }
	if echo "$said" | grep -q zkelectd; then
		echo "$said" >&2
		exit 1
	fi
	said=$(systemd-analyze security --no-pager --offline=true --threshold=20 "$unit") || {
		echo "$said" | grep -E '✗|Overall' >&2
		exit 1
	}
	echo "$said" | tail -n 1
done
said=$(systemd-sysusers --dry-run "$PWD/deploy/sysusers.d/zkelectd.conf" 2>&1) || { echo "$said" >&2; exit 1; }
