#!/usr/bin/env bash
# up-hosted.sh CLUSTER CONTROLLER KUBECTL [NODE] makes the node's cluster, which is up, a hosted cluster of the management
# cluster next to it: it installs NodePool and a sample there, and starts the companions as processes on this host, each with
# its own identity in each cluster. make down ends them and removes all of it. NODE is the node if it is not this host: then
# its runtime has the operand's image already. Each step may take PATIENCE.
set -euo pipefail
cd "$(dirname "$0")/.."
cluster=$1
controller=$2
kubectl=$3
node=${4:-partitioned}
patience=${PATIENCE:-60s}
images=_output/operators/images

eval "export $("$cluster" environment)"
hosted=$KUBECONFIG
eval "export $("$cluster" environment --management)"
management=$KUBECONFIG
unset KUBECONFIG
# It goes with the cluster.
dir=$(dirname "$hosted")/companions
mkdir --mode=0700 --parents "$dir"

at() {
  "$kubectl" --kubeconfig="$1" "${@:2}"
}
apply() {
  at "$1" apply --server-side --force-conflicts "${@:2}" >/dev/null
}

# identity KUBECONFIG NAMESPACE SERVICEACCOUNT FILE writes the kubeconfig of a ServiceAccount.
identity() {
  local token
  token=$(at "$1" create token --namespace="$2" "$3" --duration=8760h)
  (
    umask 077
    at "$1" config view --raw --minify --flatten >"$4"
  )
  at "$4" config unset users >/dev/null
  at "$4" config set-credentials "$3" --token="$token" >/dev/null
  at "$4" config set-context --current --user="$3" >/dev/null
}

# start COMPANION PORT [FIELD...] starts one as a process, in the place of the Deployment that its manifests have: the
# management cluster has no node. Nothing but its probes is served. Fields are of the configuration.
start() {
  local companion=$1 port=$2 namespace=partition-$1
  "$kubectl" kustomize "operators/deploy/$companion" | apply "$management" --filename=-
  at "$management" wait --for=condition=Established --timeout=30s customresourcedefinition --all >/dev/null
  at "$management" delete --namespace="$namespace" deployment,poddisruptionbudget --all >/dev/null
  identity "$management" "$namespace" partition-controller "$dir/$companion.kubeconfig"
  {
    cat <<END
apiVersion: config.workload.openshift.io/v1alpha1
kind: ControllerConfiguration
controller: $companion
parts: [controllers]
namespace: $namespace
clientConnection: {kubeconfig: $dir/$companion.kubeconfig}
leaderElection: {leaderElect: false}
metrics: {bindAddress: "0"}
health: {bindAddress: "127.0.0.1:$port"}
webhook: {bindAddress: "127.0.0.1:$((port + 1))"}
END
    printf '%s\n' "${@:3}"
  } >"$dir/$companion.yaml"
  "$cluster" run "$companion" -- "$controller" --config="$dir/$companion.yaml" -v=2
}

echo "installing the companions" >&2
apply "$management" --filename=operators/deploy/sample/management.yaml
start nodepool 20100

apply "$hosted" --kustomize=operators/deploy/hostedconfig/hosted
identity "$hosted" partition-hostedconfig hostedconfig "$dir/hostedconfig-hosted.kubeconfig"
start hostedconfig 20110 "hostedConnection: {kubeconfig: $dir/hostedconfig-hosted.kubeconfig}" 'settings: {controlPlaneNamespace: clusters-hosted}'

sed "s/^  partitioned: /  $node: /" operators/deploy/sample/nodepool.yaml | apply "$management" --filename=-
wait_for() {
  at "$1" wait --timeout="$patience" --for="${@:2}" >/dev/null
}
wait_for "$management" 'jsonpath={.status.conditions[?(@.type=="ValidTuningConfig")].status}=True' --namespace=clusters nodepool/pool-a
wait_for "$management" 'create' --namespace=clusters-hosted configmap/tuned-pool-a
wait_for "$hosted" 'create' --namespace=openshift-config-managed configmap/kubelet-pool-a
wait_for "$hosted" 'jsonpath={.metadata.labels.hypershift\.openshift\.io/nodePool}=pool-a' "node/$node"

# The node's containerd has the operand's image, as a registry would.
if [[ -z "${4:-}" ]]; then
  for archive in "$images"/archives/partition-tuned-*.tar; do
    _output/tools/ctr --address=/run/workload-partitioning/containerd.sock --namespace=k8s.io images import "$archive" >/dev/null
  done
fi
operand=workload.openshift.io/$(awk '$2 == "all" && $1 ~ /^partition-tuned:/ {print $1}' "$images/images.txt")
apply "$hosted" --kustomize=operators/deploy/tuning/hosted
at "$hosted" wait --for=condition=Established --timeout="$patience" customresourcedefinition --all >/dev/null
identity "$hosted" partition-tuning tuning "$dir/tuning-hosted.kubeconfig"
# Not before: a node of no pool gets the profile openshift-node, which sets some 25 sysctls, and this node's kernel is the host's.
start tuning 20120 "hostedConnection: {kubeconfig: $dir/tuning-hosted.kubeconfig}" "settings: {controlPlaneNamespace: clusters-hosted, operandImage: \"$operand\"}"
profiles=(--namespace=openshift-cluster-node-tuning-operator "profile/$node")
wait_for "$hosted" 'create' "${profiles[@]}"
wait_for "$hosted" 'jsonpath={.status.conditions[?(@.type=="Applied")].status}=True' "${profiles[@]}"
