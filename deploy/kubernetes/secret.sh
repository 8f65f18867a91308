#!/bin/sh
# Prints the secret of deploy/kubernetes/zkelectd.yaml, with a new password for ZooKeeper that all members share:
#
#   deploy/kubernetes/secret.sh | kubectl create -f -
#
# "create" refuses if the secret exists: a new password would lock the members out (docs/security.md).
set -eu
secret=$(od -An -tx1 -N16 /dev/urandom | tr -d ' \n')
[ "${#secret}" -eq 32 ] || { echo "secret.sh: cannot read a password from /dev/urandom" >&2; exit 1; }
cat <<Y
apiVersion: v1
kind: Secret
metadata:
  name: app-zookeeper
  labels: {app.kubernetes.io/name: app}
type: Opaque
stringData:
  zookeeper: "zkelectd:$secret"
Y
