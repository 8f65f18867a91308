#!/bin/bash
# Tests the Compose files of deploy/ with real containers (deploy/check/compose): start, a site disconnected and reconnected, a
# leader stopped, removal. Unless ZOOKEEPER_IMAGE and PROMETHEUS_IMAGE are set, stand-in images replace the public
# ones. COMPOSE is the command, "docker compose" or docker-compose.
set -euo pipefail
cd "$(dirname "$0")/.."
skip() { echo "SKIPPED: the compose file is not tested, since $*" >&2; exit 0; }

command -v docker >/dev/null 2>&1 || skip "there is no docker"
timeout 20 docker info >/dev/null 2>&1 || skip "no Docker engine answers"
if [ -z "${COMPOSE:-}" ]; then
	if docker compose version >/dev/null 2>&1; then
		COMPOSE="docker compose"
	else
		if ! command -v docker-compose >/dev/null 2>&1; then
			scripts/apt-install.sh "The compose file needs docker compose or docker-compose" docker-compose
		fi
		COMPOSE=docker-compose
	fi
fi
if [ -z "${ZOOKEEPER_IMAGE:-}" ] || [ -z "${PROMETHEUS_IMAGE:-}" ]; then
	eval "$(scripts/standin-images.sh)"
fi
export ZKELECTD_IMAGE=zkelectd:test
docker build --quiet --file deploy/Dockerfile --tag "$ZKELECTD_IMAGE" . >/dev/null 2>&1
echo "$COMPOSE, with $ZOOKEEPER_IMAGE and $PROMETHEUS_IMAGE, without Grafana"
go -C deploy/check run ./compose -compose "$COMPOSE" -dir "$PWD/deploy"
