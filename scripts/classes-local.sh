#!/usr/bin/env bash
# classes-local.sh CONTROLLER KUBECTL runs the webhook of workload classes on this host, with the current cluster of kubectl,
# and posts pods to it. kube-apiserver does not know of it. AS is a user to act as, and PORT where it listens.
set -euo pipefail
cd "$(dirname "$0")/.."
controller=$1
kubectl=$2
port=${PORT:-8443}
work=$(mktemp -d)
child=
finish() {
  if [[ -n $child ]]; then
    kill "$child" 2>/dev/null || true
    wait "$child" || true
  fi
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
umask 077
"$kubectl" config view --raw --minify --flatten >"$work/kubeconfig"
if [[ -n ${AS:-} ]]; then
  # kubectl config has no command for this field.
  sed -i "s|^  user:\$|  user:\n    as: '$AS'|" "$work/kubeconfig"
  grep --quiet '^    as: ' "$work/kubeconfig"
fi
for kind in nodes runtimeclasses.node.k8s.io; do
  if ! "$kubectl" --kubeconfig="$work/kubeconfig" auth can-i --quiet --all-namespaces list "$kind"; then
    echo "${AS:-the user of the kubeconfig} may not list $kind on this cluster, which the webhook does; name with AS a user who may, or leave it out" >&2
    exit 1
  fi
done
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 \
  -keyout "$work/tls.key" -out "$work/tls.crt" 2>/dev/null
cat >"$work/config.yaml" <<END
apiVersion: config.workload.openshift.io/v1alpha1
kind: ControllerConfiguration
controller: workloadclasses
parts: [webhooks]
namespace: partition-workloadclasses
clientConnection: {kubeconfig: $work/kubeconfig}
leaderElection: {leaderElect: false}
certificates: {source: Files, directory: $work}
metrics: {bindAddress: "0"}
health: {bindAddress: "127.0.0.1:$((port + 1))"}
webhook: {bindAddress: "127.0.0.1:$port"}
settings: {rulesFile: $PWD/operators/deploy/workloadclasses/rules.yaml}
END
"$controller" --config="$work/config.yaml" >"$work/log" 2>&1 &
child=$!
ready=
while [[ -z $ready ]] && ((SECONDS < 30)) && kill -0 "$child" 2>/dev/null; do
  sleep 0.2
  ready=$(curl --silent --fail --max-time 2 "http://127.0.0.1:$((port + 1))/readyz" || true)
done
if [[ -z $ready ]] || ! operators/workloadclasses/testing/post-pods.sh "https://127.0.0.1:$port"; then
  cat "$work/log" >&2
  exit 1
fi
