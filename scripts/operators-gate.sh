#!/usr/bin/env bash
# operators-gate.sh KUBECTL switches on the feature gate CPUManager of KubeVirt, on the current cluster of
# kubectl: without it KubeVirt neither labels nodes nor pins VMs, and no node gets the policy static.
set -euo pipefail -f
kubectl=$1
gate=CPUManager

fail() {
  echo "make install: $1" >&2
  exit 1
}

found=$("$kubectl" get kubevirts.kubevirt.io --all-namespaces --output='jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name} {.metadata.resourceVersion}{"\n"}{end}') ||
  fail "the cluster has no KubeVirt whose feature gate $gate could be switched on"
[[ -n $found ]] || fail "there is no object of the kind KubeVirt, whose feature gate $gate could be switched on"
while read -r namespace name version; do
  get() {
    "$kubectl" get kubevirts.kubevirt.io --namespace="$namespace" "$name" --output="jsonpath={.spec.configuration.developerConfiguration.$1[*]}"
  }
  gates=$(get featureGates)
  disabled=$(get disabledFeatureGates)
  if [[ " $disabled " == *" $gate "* ]]; then
    fail "KubeVirt $namespace/$name has $gate in spec.configuration.developerConfiguration.disabledFeatureGates; remove it there"
  fi
  if [[ " $gates " == *" $gate "* ]]; then
    echo "KubeVirt $namespace/$name: the feature gate $gate is on"
    continue
  fi
  list=$(printf '"%s",' $gates "$gate")
  # With the version that was read, nobody's change in between is lost.
  "$kubectl" patch kubevirts.kubevirt.io --namespace="$namespace" "$name" --type=merge --output=name \
    --patch="{\"metadata\":{\"resourceVersion\":\"$version\"},\"spec\":{\"configuration\":{\"developerConfiguration\":{\"featureGates\":[${list%,}]}}}}" >/dev/null
  echo "KubeVirt $namespace/$name: the feature gate $gate is on now"
done <<<"$found"
