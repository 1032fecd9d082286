#!/usr/bin/env bash
# change-pools.sh FILE NODE... gives each node the pinning file FILE, one node after another. It
# stops at the first one on which something is not as it should be. See docs/user/fleet.md.
#
# Here it needs kubectl, with the rights to drain nodes. On the nodes it needs SSH as root,
# kubectl-partition, and a kubelet that is the systemd unit kubelet.
set -euo pipefail
file=$1
shift
pinning=/etc/kubernetes/openshift-workload-pinning

# plan says what the kubelet of a node will do with the file. It ends with 0 if that is safe, with
# 1 if it is not, and with 2 if it is not known.
plan() {
  kubectl get pods --all-namespaces --field-selector "spec.nodeName=$1" -o json | ssh "root@$1" "umask 077; cat > $pinning.pods"
  ssh "root@$1" "kubectl-partition plan --on-host --file $pinning.new --pods $pinning.pods; code=\$?; rm $pinning.pods; exit \$code"
}

# stop ends it all at a node, and says why.
stop() {
  ssh "root@$1" "rm -f $pinning.new"
  echo "$1: $2" >&2
  exit 1
}

# healthy waits until the kubelet of a node has done its work, for two minutes.
healthy() {
  local tries
  for ((tries = 0; tries < 12; tries++)); do
    if ssh "root@$1" "kubectl-partition audit --notes=false" >"$findings" 2>&1; then
      return 0
    fi
    sleep 10
  done
  cat "$findings" >&2
  return 1
}

findings=$(mktemp)
trap 'rm -f "$findings"' EXIT
for node in "$@"; do
  echo "== $node"
  ssh "root@$node" "umask 077; cat > $pinning.new" <"$file"
  drained=false code=0
  plan "$node" || code=$?
  if ((code == 1)); then
    drained=true
    kubectl drain "$node" --ignore-daemonsets --delete-emptydir-data --timeout=10m || stop "$node" "cannot be drained"
    plan "$node" || stop "$node" "the change is not safe even without its pods; it stays drained"
  elif ((code != 0)); then
    stop "$node" "it is not known whether the change is safe"
  fi
  ssh "root@$node" "mv $pinning.new $pinning && systemctl restart kubelet"
  healthy "$node" || stop "$node" "the audit finds the above"
  kubectl wait "node/$node" --for=condition=Ready --timeout=2m
  if [[ $drained == true ]]; then
    kubectl uncordon "$node"
  fi
done
