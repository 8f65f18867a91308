#!/bin/sh
# Looks for known vulnerabilities in what the binary calls, by the database of the Go project. Where that can't be reached,
# it says so and does not fail: that nothing was found is then not known. GOVULNDB names a copy (file:///path).
set -eu
cd "$(dirname "$0")/.."
db=${GOVULNDB:-https://vuln.go.dev}
case $db in
http*)
	if ! curl -sfm 20 -o /dev/null "$db/index/modules.json"; then
		echo "vulncheck: NOT CHECKED: $db can't be reached; set GOVULNDB=file:///path to a copy (https://vuln.go.dev/vulndb.zip)" >&2
		[ -z "${REQUIRED:-}" ] || exit 1
		exit 0
	fi
	;;
esac
exec go tool -modfile=deploy/package/vulncheck.mod govulncheck -db "$db" ./...
