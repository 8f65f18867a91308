#!/bin/sh
# hooks.on_leader_change of every pod: the label zkelectd-leader=true is on the leader's pod only. The node ids are the names of the pods.
# It needs only curl. ZKELECTD_… variables are those of the hook.
set -eu
api=${KUBERNETES_API:-https://kubernetes.default.svc}
account=${SERVICE_ACCOUNT_DIR:-/var/run/secrets/kubernetes.io/serviceaccount}
namespace=$(cat "$account/namespace")

# label POD VALUE COST sets the label, or removes it with null; and the cost of the pod's deletion, by which a Deployment that scales in
# deletes the leader's pod last. A pod that does not exist any more needs neither.
label() {
	status=$(printf 'header = "Authorization: Bearer %s"\n' "$(cat "$account/token")" |
		curl --silent --show-error --config - --cacert "$account/ca.crt" --max-time 4 --output /dev/null --write-out '%{http_code}' \
			--request PATCH --header 'Content-Type: application/merge-patch+json' \
			--data "{\"metadata\":{\"labels\":{\"zkelectd-leader\":$2},\"annotations\":{\"controller.kubernetes.io/pod-deletion-cost\":$3}}}" \
			"$api/api/v1/namespaces/$namespace/pods/$1")
	case $status in
	200 | 404) ;;
	*)
		echo "cannot set the label of pod $1: the API server answers $status" >&2
		return 1
		;;
	esac
}

if [ "$ZKELECTD_LEADER" != "$ZKELECTD_NODE" ]; then
	label "$ZKELECTD_NODE" null null
	exit
fi
# The pod of the previous leader may be on a node that is lost: it cannot remove its own label.
if [ -n "$ZKELECTD_PREVIOUS_LEADER" ] && [ "$ZKELECTD_PREVIOUS_LEADER" != "$ZKELECTD_NODE" ]; then
	label "$ZKELECTD_PREVIOUS_LEADER" null null
fi
label "$ZKELECTD_NODE" '"true"' '"100"'
