#!/usr/bin/env bash
# post-pods.sh [ADDRESS] posts the pods of pods.jsonl to a webhook of workload classes, as kube-apiserver does, and prints what
# the webhook would write into each. ADDRESS is https://127.0.0.1:8443 unless it is given.
set -euo pipefail
cd "$(dirname "$0")"
address=${1:-https://127.0.0.1:8443}
while read -r pod; do
  namespace=$(sed -E 's/.*"namespace":"([^"]*)".*/\1/' <<<"$pod")
  name=$(sed -E 's/.*"(generateName|name)":"([^"]*)"(,"labels"|}).*/\2/' <<<"${pod%%\"spec\"*}")
  review='{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "test", "operation": "CREATE",
    "kind": {"version": "v1", "kind": "Pod"}, "resource": {"version": "v1", "resource": "pods"},
    "namespace": "'$namespace'", "object": {"apiVersion": "v1", "kind": "Pod", '${pod#\{}'}}'
  # Its certificate is for kube-apiserver.
  answer=$(curl --silent --show-error --fail --insecure --max-time 10 --header 'Content-Type: application/json' --data "$review" "$address/workloadclasses/mutate-pod")
  patch=$(sed -nE 's/.*"patch":"([^"]*)".*/\1/p' <<<"$answer" | base64 --decode)
  echo "$namespace/$name: ${patch:-left as it is}"
done <pods.jsonl
