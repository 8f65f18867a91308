#!/bin/sh
# Checks the units with systemd-analyze: verify must not report anything, and the exposure level must stay below 2.0 of 10.
set -eu
cd "$(dirname "$0")/.."

if ! command -v systemd-analyze >/dev/null 2>&1; then
	scripts/apt-install.sh "SKIPPED: the units are not checked, since systemd-analyze is missing" systemd || exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# zkelectd@.service is generated from zkelectd.service.
scripts/instance-unit.sh <deploy/systemd/zkelectd.service >"$work/zkelectd@.service"
diff -u deploy/systemd/zkelectd@.service "$work/zkelectd@.service" >&2 || {
	echo "deploy/systemd/zkelectd@.service is out of date: run scripts/instance-unit.sh <deploy/systemd/zkelectd.service >deploy/systemd/zkelectd@.service" >&2
	exit 1
}

# Neither the program nor its manual has to be installed.
for unit in zkelectd.service zkelectd@.service; do
	sed -e "s|/usr/bin/zkelectd|/bin/true|; s|man:zkelectd(1) ||" "deploy/systemd/$unit" >"$work/$unit"
done
# A unit that is the leader-only work, with its drop-in.
printf '[Service]\nExecStart=/bin/true\n' >"$work/app.service"
mkdir "$work/app.service.d"
sed -e "s|/usr/bin/zkelectd|/bin/true|" deploy/systemd/app.service.d/zkelectd.conf >"$work/app.service.d/zkelectd.conf"
output=$(systemd-analyze verify "$work/app.service" 2>&1) || { echo "$output" >&2; exit 1; }
if echo "$output" | grep -q 'app.service\|zkelectd'; then
	echo "$output" >&2
	exit 1
fi
# The drop-ins of recipes: each permits more, so only verify applies.
for dropin in deploy/examples/*/zkelectd.service.conf; do
	recipe=$work/$(basename "$(dirname "$dropin")")
	mkdir -p "$recipe/zkelectd.service.d"
	cp "$work/zkelectd.service" "$recipe/"
	cp "$dropin" "$recipe/zkelectd.service.d/recipe.conf"
	output=$(systemd-analyze verify "$recipe/zkelectd.service" 2>&1) || { echo "$output" >&2; exit 1; }
	if echo "$output" | grep -q 'zkelectd\|recipe'; then
		echo "$output" >&2
		exit 1
	fi
done
for unit in "$work/zkelectd.service" "$work/zkelectd@g1.service"; do
	[ -e "$unit" ] || cp "$work/zkelectd@.service" "$unit"
	# verify exits with 0 even if it reports unknown settings, so any output about the unit is a failure.
	output=$(systemd-analyze verify "$unit" 2>&1) || { echo "$output" >&2; exit 1; }
	if echo "$output" | grep -q zkelectd; then
		echo "$output" >&2
		exit 1
	fi
	output=$(systemd-analyze security --no-pager --offline=true --threshold=20 "$unit") || {
		echo "$output" | grep -E '✗|Overall' >&2
		exit 1
	}
	echo "$output" | tail -n 1
done
output=$(systemd-sysusers --dry-run "$PWD/deploy/sysusers.d/zkelectd.conf" 2>&1) || { echo "$output" >&2; exit 1; }
