# Read by the scripts of this directory, which get the path of postgresql.env as their first argument.
. "$1"
peers=$(for host in $HOSTS; do [ "${host%%=*}" = "$NODE" ] || echo "${host%%=*}"; done)
# A confirmed commit is on SYNC + 1 hosts. So who has the most of all but SYNC hosts, itself included, has each of them.
need=$((SYNC > 0 ? $(wc -w <<<"$peers") - SYNC : 0))

say() { echo "${0##*/}: $*" >&2; }
limits="connect_timeout=3 tcp_user_timeout=5000 keepalives_idle=5 keepalives_interval=1 keepalives_count=5" # a host may vanish
at() { for host in $HOSTS; do [ "${host%%=*}" != "$1" ] || echo "host=${host#*=} port=$PORT user=postgres $limits"; done; }
query() { "$BIN/psql" -XqAt -v ON_ERROR_STOP=1 "$1 dbname=postgres" -c "$2"; }
here() { query "host=$STATE port=$PORT" "$1"; }

# ask SQL: what the other hosts answer, a line each. It leaves out those that do not answer in time, or with an error.
ask() {
	for peer in $peers; do timeout 4 "$BIN/psql" -XqAt -v ON_ERROR_STOP=1 "$(at "$peer") dbname=postgres" -c "$1" 2>/dev/null & done
	wait
}

# point NODE: names the source of this standby; without a node, one that does not exist. It takes effect at the next start or reload.
point() {
	sed -i '/^primary_conninfo/d' "$DATA/postgresql.auto.conf"
	source=$(at "${1:-}")
	echo "primary_conninfo = '${source:-host=/nowhere}'" >>"$DATA/postgresql.auto.conf"
}

# What a host has: its name, is it a standby, the term of its newest data, and how many bytes of the log. Histories are compared as in
# Raft: the later term has more; in the same term, the longer log. A standby that still reads its own log does not answer.
has="SELECT current_setting('cluster_name'), pg_is_in_recovery(), coalesce(max(term), 0), CASE WHEN pg_is_in_recovery()
	THEN greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) ELSE pg_current_wal_flush_lsn() END - '0/0'
	FROM fence HAVING NOT pg_is_in_recovery() OR pg_last_wal_receive_lsn() IS NOT NULL"
