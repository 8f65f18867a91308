# Read by the scripts of this directory, which get the path of postgresql.env as their first argument.
. "$1"

# server OPTION...: becomes PostgreSQL. The options here override postgresql.conf, which pg_basebackup copies from the other host.
server() {
	exec "$BIN/postgres" -D "$DATA" -k "$STATE" -h "$LISTEN" -p "$PORT" -c cluster_name="$NODE" \
		-c wal_level=replica -c wal_log_hints=on -c wal_keep_size=1GB -c hot_standby=on -c wal_retrieve_retry_interval=1s \
		-c synchronous_commit=on -c synchronous_standby_names="$SYNC" "$@"
}

# local_sql SQL, peer_sql SQL: print the result without decoration.
local_sql() { PGOPTIONS="-c client_min_messages=warning" psql -XqAt -v ON_ERROR_STOP=1 "host=$STATE port=$PORT dbname=postgres" -c "$1"; }
peer_sql() { psql -XqAt -v ON_ERROR_STOP=1 "$PEER_CONNINFO dbname=postgres connect_timeout=3" -c "$1"; }

say() { echo "${0##*/}: $*" >&2; }
