# What the scripts of this recipe share. $1 is the node.
node=$1
state=$PWD/redis-$node # the data, and who led last; on hosts of their own: /var/lib/redis

# address prints host and port of a node's server; on hosts of their own: echo "$1 6379"
address() { echo "127.0.0.1 640${1#n}"; }

# shellcheck disable=SC2046
redis() { redis-cli -h $(address "$node" | cut -d' ' -f1) -p $(address "$node" | cut -d' ' -f2) "$@"; }
