#!/usr/bin/env bash
# undo-tuning.sh CLUSTER KUBECTL has TuneD undo what it changed on this host, before make down ends the node of make up-hosted.
set -euo pipefail
cluster=$1
kubectl=$2
namespace=openshift-cluster-node-tuning-operator

# Most clusters have no TuneD, and some do not answer any more.
environment=$("$cluster" environment 2>/dev/null) || exit 0
eval "export $environment"
at() {
  "$kubectl" --namespace="$namespace" "$@"
}
at get daemonset tuned --request-timeout=5s >/dev/null 2>&1 || exit 0
# Without its rights, the companion does not make the DaemonSet again. Whatever fails, the cluster goes all the same.
{
  at delete rolebinding tuning-hosted --ignore-not-found &&
    at delete daemonset tuned --ignore-not-found &&
    at wait --for=delete pods --selector=openshift-app=tuned --timeout=90s
} >/dev/null || echo "TuneD may have left something that it changed on this host" >&2
# What TuneD has kept of the values before, and for the next boot.
rm -rf /run/partition-node/tuned /var/lib/partition-node/tuned
rmdir --ignore-fail-on-non-empty /run/partition-node /var/lib/partition-node 2>/dev/null || true
