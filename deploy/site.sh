#!/bin/sh
# Cuts a site of deploy/docker-compose.yml, with its ZooKeeper server, off from the others, or reconnects it.
set -eu
case "${1:-} ${2:-}" in
"cut dc1" | "cut dc2" | "heal dc1" | "heal dc2") ;;
*)
	echo "usage: deploy/site.sh cut|heal dc1|dc2" >&2
	exit 2
	;;
esac
what=$1 site=$2 project=${COMPOSE_PROJECT_NAME:-zkelectd}
containers=$(docker ps --filter "label=com.docker.compose.project=$project" --filter "label=zkelectd.site=$site" \
	--format '{{.ID}} {{.Label "com.docker.compose.service"}}')
[ -n "$containers" ] || { echo "no container of $site runs in the project $project (COMPOSE_PROJECT_NAME)" >&2; exit 1; }
echo "$containers" | while read -r id service; do
	case $what in
	cut) docker network disconnect "${project}_backbone" "$id" ;;
	heal)
		# The other containers know it by the name of its service.
		docker network connect --alias "$service" "${project}_backbone" "$id"
		# Docker may assign a new address, and a ZooKeeper server announces its address to the others only once.
		case $service in zk*) docker restart --time 5 "$id" >/dev/null ;; esac
		;;
	esac
done
