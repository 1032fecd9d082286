#!/usr/bin/env bash
# operators-foreign.sh MANIFESTS KUBECTL prints patches for kustomize that leave out CustomResourceDefinitions of a companion, by the
# directory of its manifests, which the current cluster of kubectl has from somebody else: ours would take fields from theirs, and to remove them would delete
# their objects.
set -euo pipefail
cd "$(dirname "$0")/.."
manifests=$1
kubectl=$2

for file in "$manifests"/crd/*.yaml; do
  [[ -e $file && ${file##*/} != kustomization.yaml ]] || continue
  name=$(awk '$1 == "name:" {print $2; exit}' "$file")
  part=$("$kubectl" get customresourcedefinitions "$name" --ignore-not-found --output='jsonpath=of {.metadata.labels.app\.kubernetes\.io/part-of}')
  if [[ -n $part && $part != "of workload-partitioning" ]]; then
    echo "the cluster keeps its own CustomResourceDefinition $name" >&2
    printf -- '- patch: |-\n    $patch: delete\n    apiVersion: apiextensions.k8s.io/v1\n    kind: CustomResourceDefinition\n    metadata: {name: %s}\n' "$name"
  fi
done
