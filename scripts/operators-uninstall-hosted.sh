#!/usr/bin/env bash
# operators-uninstall-hosted.sh COMPANION MANIFESTS KUBECTL CONTROLLER KUBECONFIG removes what a companion has in a hosted cluster,
# and what it has left in that of kubectl.
set -euo pipefail
cd "$(dirname "$0")/.."
operator=$1
manifests=$2
hosted=("$3" --kubeconfig="$5")
clean=("$4" clean --controller="$1" --hosted-kubeconfig="$5")

"${hosted[@]}" delete --ignore-not-found validatingadmissionpolicybindings --selector="app.kubernetes.io/name=$operator"
for try in {1..10}; do
  "${clean[@]}" && break
  [[ $try != 10 ]] || exit 1
  sleep 2
done
# What runs on nodes undoes what it did while its rights are there, and may write until its end.
for namespace in $("${hosted[@]}" get namespaces --selector="app.kubernetes.io/name=$operator,app.kubernetes.io/part-of=workload-partitioning" --output='jsonpath={.items[*].metadata.name}'); do
  "${hosted[@]}" wait --for=delete --timeout=2m pods --namespace="$namespace" --selector="app.kubernetes.io/name=$operator"
done
"${clean[@]}"
"${hosted[@]}" delete --ignore-not-found --kustomize="$manifests/hosted"
