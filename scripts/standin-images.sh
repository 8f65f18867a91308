#!/bin/bash
# Builds images that replace the public ones in deploy/docker-compose.yml where no registry can be reached: ZooKeeper and
# Prometheus from Debian's packages. They behave like the originals as far as that file relies on it. There is no image of
# Grafana, which Debian does not have. The output, the names of the images, is for eval.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v apt-get >/dev/null 2>&1 || {
	echo "standin-images: this is not Debian: pull the images of deploy/docker-compose.yml, and set ZOOKEEPER_IMAGE and PROMETHEUS_IMAGE" >&2
	exit 1
}
[ "$(id -u)" -eq 0 ] || exec sudo -n scripts/standin-images.sh

# The tag changes with the scripts that build the image.
tag=$(sha256sum scripts/standin-images.sh scripts/install-prometheus.sh | sha256sum | cut -c1-12)
zookeeper=zkelectd-standin/zookeeper:$tag
prometheus=zkelectd-standin/prometheus:$tag
has() { docker image inspect "$1" >/dev/null 2>&1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

make_zookeeper() {
	echo "building an image of Debian's ZooKeeper, which takes a minute" >&2
	if ! command -v mmdebstrap >/dev/null 2>&1; then
		scripts/apt-install.sh "Stand-in images are built with mmdebstrap" mmdebstrap
	fi
	# Java works with the unpacked packages. They are not configured, and none of their scripts run.
	local root=$work/root
	mmdebstrap --quiet --variant=extract --format=directory --aptopt='APT::Install-Recommends "false"' \
		--include=bash,coreutils,grep,default-jre-headless,libzookeeper-java,libslf4j-java \
		"$(. /etc/os-release && echo "$VERSION_CODENAME")" "$root" >&2
	rm -rf "$root"/usr/share/{doc,man,locale,javascript} "$root"/var/{cache,lib}/apt "$root"/dev/*
	# As in the original: configuration in /conf, data in /data, the server's number in ZOO_MY_ID, user 1000.
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
	echo "building an image of Debian's Prometheus" >&2
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
