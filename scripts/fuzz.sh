#!/bin/bash
# Runs all fuzz tests of the module in turn, for FOR (default 60s) in total. It stops at the first failure and prints the
# reproducer, a file to commit, which go test then runs as a test.
set -euo pipefail
cd "$(dirname "$0")/.."
total=${FOR:-60s}
case $total in
*[0-9]s) total=${total%s} ;;
*[0-9]m) total=$((${total%m} * 60)) ;;
*[0-9]h) total=$((${total%h} * 3600)) ;;
*) echo "fuzz: FOR is $total: want a total time, as in 90s, 10m or 2h" >&2 && exit 1 ;;
esac

mapfile -t all < <(grep -rE --include='*_test.go' --only-matching '^func Fuzz[A-Za-z0-9_]+\(' cmd internal bench | sort)
[ "${#all[@]}" -gt 0 ] || { echo "fuzz: there are no fuzz tests" >&2; exit 1; }
milliseconds=$((total * 1000 / ${#all[@]}))
echo "fuzzing ${#all[@]} functions, ${milliseconds} ms each"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Before Go 1.27 the end of the fuzz time may be reported as a failure, without an input (https://go.dev/issue/75804).
only_timeout() { grep -q '^ *context deadline exceeded$' "$log" && ! grep -q 'Failing input written to\|panic' "$log"; }
for found in "${all[@]}"; do
	package=./$(dirname "${found%%:*}")
	name=${found#*:func }
	name=${name%(}
	if { ! go test -run='^$' -fuzz="^$name\$" -fuzztime="${milliseconds}ms" -fuzzminimizetime=5s "$package" >"$log" 2>&1 &&
		! only_timeout; } || grep -q 'no fuzz tests to fuzz' "$log"; then
		cat "$log"
		reproducer=$(sed -n 's/^ *Failing input written to //p' "$log")
		echo "fuzz: $name in $package fails"
		if [ -n "$reproducer" ]; then
			echo "its input: $package/$reproducer"
			echo "replay it: go test $package -run '^$name\$/^$(basename "$reproducer")\$'"
		else
			echo "replay it: go test $package -run '^$name\$'"
		fi
		exit 1
	fi
	executed=$(sed -n 's/.*execs: \([0-9]*\).*/\1/p' "$log" | tail -n 1)
	printf '%-48s %9s inputs\n' "${package#./internal/} $name" "${executed:-0}"
done
