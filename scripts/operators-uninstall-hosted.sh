#!/usr/bin/env bash
# operators-uninstall-hosted.sh COMPANION KUBECTL CONTROLLER KUBECONFIG removes what a companion has in a hosted cluster, and what it
# has left in that of kubectl.
set -euo pipefail
cd "$(dirname "$0")/.."
operator=$1
controller=$3
hosted=("$2" --kubeconfig="$4")

"${hosted[@]}" delete --ignore-not-found validatingadmissionpolicybindings --selector="app.kubernetes.io/name=$operator"
for try in {1..10}; do
  "$controller" clean --controller="$operator" --hosted-kubeconfig="$4" && break
  [[ $try != 10 ]] || exit 1
  sleep 2
done
if [[ $operator == tuning ]]; then
  # It undoes what it did while its rights are there.
  "${hosted[@]}" wait --for=delete --timeout=2m pods --namespace=openshift-cluster-node-tuning-operator --selector=openshift-app=tuned
fi
"${hosted[@]}" delete --ignore-not-found --kustomize="operators/deploy/$operator/hosted"
