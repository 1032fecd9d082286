#!/usr/bin/env bash
# change-pools.sh FILE NODE... gives each node the pinning file FILE, one node after another. It
# stops at the first one on which something is not as it should be. See docs/user/fleet.md.
#
# If FILE is in a directory that kubectl partition render has written, a node that has CRI-O's or
# the kubelet's drop-in gets the one from there, too.
#
# Here it needs kubectl, with the rights to drain nodes. On the nodes it needs SSH as root,
# kubectl-partition, and a kubelet that is the systemd unit kubelet.
set -euo pipefail
file=$1
shift
pinning=/etc/kubernetes/openshift-workload-pinning
# The drop-ins that render writes beside it, and what reads them beside the kubelet.
declare -A drop_ins=(
  [/etc/crio/crio.conf.d/01-workload-partitioning]=crio
  [/etc/kubernetes/kubelet.conf.d/01-workload-partitioning.conf]=
)
rendered=
if [[ $file == *"$pinning" ]]; then
  rendered=${file%"$pinning"}
fi

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

# change gives a node the file, and the drop-ins that it has, and restarts what reads them.
change() {
  local path units=(kubelet)
  for path in "${!drop_ins[@]}"; do
    if [[ -n $rendered && -f $rendered$path ]] && ssh "root@$1" "test -e $path"; then
      ssh "root@$1" "umask 022; cat > $pinning.drop-in && mv $pinning.drop-in $path" <"$rendered$path"
      units=(${drop_ins[$path]:+"${drop_ins[$path]}"} "${units[@]}")
    fi
  done
  ssh "root@$1" "mv $pinning.new $pinning && systemctl restart ${units[*]}"
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
  drained= code=0
  plan "$node" || code=$?
  if ((code == 1)); then
    kubectl drain "$node" --ignore-daemonsets --delete-emptydir-data --timeout=10m || stop "$node" "cannot be drained"
    drained="; it stays drained" code=0
    plan "$node" || code=$?
  fi
  case $code in
    0) change "$node" ;;
    1) stop "$node" "the change is not safe even without its pods$drained" ;;
    *) stop "$node" "it is not known whether the change is safe$drained" ;;
  esac
  healthy "$node" || stop "$node" "the audit finds the above$drained"
  kubectl wait "node/$node" --for=condition=Ready --timeout=2m
  if [[ -n $drained ]]; then
    kubectl uncordon "$node"
  fi
done
