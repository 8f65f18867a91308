#!/usr/bin/env bash
# Mutation testing of pure packages with gremlins: it changes one thing at a time, and a test of the package must notice that. Those that
# none notices must be in scripts/mutants.txt, with a reason; a line there that a test does notice fails as well. Gremlins
# does not try constants and the conditions of switch cases, as coverage does not show that they are reached.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C GOFLAGS="-trimpath -vet=off"
gremlins=$(go tool -n -modfile=scripts/mutants.mod gremlins)
lived=$(mktemp) accepted=$(mktemp) log=$(mktemp)
trap 'rm -f "$lived" "$accepted" "$log"' EXIT

for package in "$@"; do
	echo "== $package"
	"$gremlins" unleash --timeout-coefficient 20 --output-statuses l --invert-logical --invert-loopctrl --invert-assignments "./$package" | tee "$log"
	# The number of a line changes too often to identify a mutant: its text does it.
	while IFS=: read -r kind file line _; do
		echo "$package/$file: $kind: $(sed -n "${line}s/^[[:space:]]*//p" "$package/$file")" >>"$lived"
	done < <(sed -nE 's/^ *LIVED ([A-Z_]+) at (.*)$/\1:\2/p' "$log")
	grep "^$package/[^/]*: " scripts/mutants.txt >>"$accepted" || true
done
new=$(comm -23 <(sort -u "$lived") <(sort -u "$accepted"))
gone=$(comm -13 <(sort -u "$lived") <(sort -u "$accepted"))
[ -z "$new" ] || printf 'no test notices these:\n%s\n' "$new"
[ -z "$gone" ] || printf 'remove these from scripts/mutants.txt:\n%s\n' "$gone"
[ -z "$new$gone" ]
