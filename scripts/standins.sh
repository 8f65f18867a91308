#!/bin/bash
# Makes images that stand in for the public ones of deploy/docker-compose.yml where no registry can be reached: ZooKeeper
# and Prometheus out of Debian's packages. They keep the originals' ways as far as that file relies on them. There is none
# of Grafana, which Debian does not have. What it prints is for eval: the names of the images.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v apt-get >/dev/null 2>&1 || {
	echo "standins: this is no Debian: pull the images of deploy/docker-compose.yml, and set ZOOKEEPER_IMAGE and PROMETHEUS_IMAGE" >&2
	exit 1
}
[ "$(id -u)" -eq 0 ] || exec sudo -n scripts/standins.sh

# An image is as old as what made it.
tag=$(sha256sum scripts/standins.sh scripts/install-prometheus.sh | sha256sum | cut -c1-12)
zookeeper=zkelectd-standin/zookeeper:$tag
prometheus=zkelectd-standin/prometheus:$tag
has() { docker image inspect "$1" >/dev/null 2>&1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

make_zookeeper() {
	echo "making an image of Debian's ZooKeeper, which takes a minute" >&2
	if ! command -v mmdebstrap >/dev/null 2>&1; then
		scripts/apt-install.sh "Stand-ins are made by mmdebstrap" mmdebstrap
	fi
	# Unpacked is enough for Java; nothing is configured, and nothing of the packages runs.
	local root=$work/root
	mmdebstrap --quiet --variant=extract --format=directory --aptopt='APT::Install-Recommends "false"' \
		--include=bash,coreutils,grep,default-jre-headless,libzookeeper-java,libslf4j-java \
		"$(. /etc/os-release && echo "$VERSION_CODENAME")" "$root" >&2
	rm -rf "$root"/usr/share/{doc,man,locale,javascript} "$root"/var/{cache,lib}/apt "$root"/dev/*
	# As the original: configuration in /conf, data in /data, the server's number in ZOO_MY_ID, the user 1000.
	mkdir -p "$root/data" "$root/conf" "$root/usr/local/bin"
	chown 1000:1000 "$root/data" "$root/conf"
	cat >"$root/usr/local/bin/docker-entrypoint.sh" <<'S'
#!/bin/bash
set -e
[ -e /data/myid ] || echo "${ZOO_MY_ID:-1}" >/data/myid
exec "$@"
S
	cat >"$root/usr/local/bin/zkServer.sh" <<'S'
#!/bin/bash
jars=/usr/share/java
exec /usr/lib/jvm/default-java/bin/java "-Xmx${ZK_SERVER_HEAP:-1000}m" -cp "$jars/zookeeper.jar:$jars/slf4j-simple.jar" \
	org.apache.zookeeper.server.quorum.QuorumPeerMain /conf/zoo.cfg
S
	chmod 0755 "$root"/usr/local/bin/*
	tar --create --directory "$root" . |
		docker import --change 'ENV PATH=/usr/local/bin:/usr/bin:/bin' --change 'USER 1000:1000' \
			--change 'EXPOSE 2181 2888 3888' --change 'ENTRYPOINT ["docker-entrypoint.sh"]' \
			--change 'CMD ["zkServer.sh", "start-foreground"]' - "$zookeeper" >/dev/null
}

make_prometheus() {
	echo "making an image of Debian's Prometheus" >&2
	scripts/install-prometheus.sh >&2
	local into=$work/prometheus
	mkdir -p "$into/data"
	touch "$into/data/.keep"
	cp "$(command -v prometheus)" "$(command -v promtool)" "$into/"
	cat >"$into/Dockerfile" <<S
FROM $zookeeper
COPY prometheus promtool /bin/
COPY --chown=65534:65534 data /prometheus
WORKDIR /prometheus
USER 65534:65534
EXPOSE 9090
ENTRYPOINT ["prometheus"]
CMD []
S
	docker build --quiet --tag "$prometheus" "$into" >/dev/null 2>&1
}

has "$zookeeper" || make_zookeeper
has "$prometheus" || make_prometheus
echo "export ZOOKEEPER_IMAGE=$zookeeper PROMETHEUS_IMAGE=$prometheus"
