#!/bin/sh
# Prints the licence of zkelectd, and those of all that is linked into it, as they come with the modules: for the packages.
set -eu
cd "$(dirname "$0")/.."
line() { printf '\n%s\n\n' '--------------------------------------------------------------------------------'; }
cat LICENSE
line
printf 'The binary holds the modules that follow, each under its own licence.\n'
line
printf 'The Go runtime and standard library\n\n'
cat "$(go env GOROOT)/LICENSE"
# The module itself has no version.
go list -deps -f '{{with .Module}}{{if .Version}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' ./cmd/zkelectd | LC_ALL=C sort -u |
	while read -r path version dir; do
		line
		printf '%s %s\n' "$path" "$version"
		found=
		for text in "$dir"/LICEN[SC]E* "$dir"/COPYING* "$dir"/NOTICE*; do
			[ -f "$text" ] || continue
			printf '\n'
			cat "$text"
			case ${text##*/} in NOTICE*) ;; *) found=yes ;; esac
		done
		[ -n "$found" ] || { echo "licences: $path $version has no licence in $dir" >&2; exit 1; }
	done
