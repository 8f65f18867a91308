#!/bin/sh
# Tests with the ZooKeeper of each of Debian's suites: the contract of the protocol, the demo, whose third step is the crash of a
# leader, and lost hosts. Versions with TLS also run the tests of sessions.
set -eu
for suite in ${SUITES:-bullseye bookworm trixie sid}; do
	ZOOKEEPER_HOME=$(scripts/unpack-zookeeper.sh "$suite")
	export ZOOKEEPER_HOME
	echo "== $suite: $(cd "$ZOOKEEPER_HOME/lib" && echo zookeeper-[0-9]*.jar)"
	sessions=./internal/zk
	[ "$suite" != bullseye ] || sessions=
	# shellcheck disable=SC2086
	go test -count=1 ./internal/store/... $sessions
	go test -count=1 ./internal/cli -run '^(TestALostHostIsShownAsSilent|TestTheLeaseWaitAfterALostHostIsExplained)$'
	bin/demo --once >"$ZOOKEEPER_HOME/demo.log" || {
		cat "$ZOOKEEPER_HOME/demo.log"
		exit 1
	}
	sed -n 's/^[1-6]\. /   &/p' "$ZOOKEEPER_HOME/demo.log"
done
