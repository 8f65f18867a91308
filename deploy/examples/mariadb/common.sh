# Read by the scripts of this directory, which get the path of mariadb.env as their first argument.
. "$1"
PATH=$PATH:/usr/sbin

# server OPTION...: becomes MariaDB. Each starts with read_only=ON; only "primary" changes that.
server() {
	exec mariadbd --no-defaults --datadir="$DATA" --socket="$STATE/socket" --pid-file="$STATE/pid" \
		--bind-address="$LISTEN" --port="$PORT" --server-id="$SERVER_ID" --report-host="$NODE" \
		--log-bin=binlog --log-slave-updates=ON --gtid-strict-mode=ON --binlog-format=ROW --skip-slave-start --read-only=ON \
		--sync-binlog=1 --innodb-flush-log-at-trx-commit=1 --sync-relay-log=1 "$@"
}

# local_sql SQL, peer_sql SQL: print the result without decoration.
local_sql() { mariadb --no-defaults -NB -S "$STATE/socket" -e "$1"; }
peer_sql() {
	MYSQL_PWD=$REPLICATION_PASSWORD mariadb --no-defaults -NB --connect-timeout=3 -h "$PEER_HOST" -P "$PEER_PORT" \
		-u "$REPLICATION_USER" -e "$1"
}

# replication NAME: prints a field of SHOW SLAVE STATUS.
replication() {
	mariadb --no-defaults -S "$STATE/socket" -e "SHOW SLAVE STATUS\G" | sed -n "s/^ *$1: //p"
}

# note NAME VALUE: notes something so that it survives a crash.
note() { echo "$2" >"$STATE/$1.new" && sync "$STATE/$1.new" && mv "$STATE/$1.new" "$STATE/$1"; }
noted() { cat "$STATE/$1" 2>/dev/null; }

say() { echo "${0##*/}: $*" >&2; }
