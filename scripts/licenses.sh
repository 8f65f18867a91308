#!/bin/sh
# Prints the license of zkelectd and the licenses of all modules in the binary, for the packages.
set -eu
cd "$(dirname "$0")/.."
line() { printf '\n%s\n\n' '--------------------------------------------------------------------------------'; }
cat LICENSE
line
printf 'The binary contains the following modules, each under its own license.\n'
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
		[ -n "$found" ] || { echo "licenses: $path $version has no license in $dir" >&2; exit 1; }
	done
