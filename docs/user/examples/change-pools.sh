#!/usr/bin/env bash
# change-pools.sh FILE NODE... gives each node the pinning file FILE, one node after another. It
# stops at the first one on which something is not as it should be. See docs/user/fleet.md.
#
# If kubectl partition render has written FILE, the drop-ins next to it go to the nodes that have
# them, too: CRI-O's, and reservedSystemCPUs in the kubelet's.
#
# Here it needs kubectl, with the rights to drain nodes. On the nodes it needs SSH as root,
# kubectl-partition, and a kubelet that is the systemd unit kubelet.
set -euo pipefail
file=$(realpath "$1")
shift
pinning=/etc/kubernetes/openshift-workload-pinning
crio=/etc/crio/crio.conf.d/01-workload-partitioning
kubelet=/etc/kubernetes/kubelet.conf.d/01-workload-partitioning.conf
rendered=
if [[ $file == *"$pinning" ]]; then
  rendered=${file%"$pinning"}
fi

# plan says what the kubelet of a node will do with the file. It ends with 0 if that is safe, with
# 1 if it is not, and with 2 if it is not known. If kubectl fails, it prints a list without pods all the same.
plan() {
  kubectl get pods --all-namespaces --field-selector "spec.nodeName=$1" -o json | ssh "root@$1" "umask 077; cat > $pinning.pods" || return 2
  ssh "root@$1" "kubectl-partition plan --on-host --file $pinning.new --pods $pinning.pods; code=\$?; rm $pinning.pods; exit \$code"
}

# stop ends it all at a node, and says why.
stop() {
  ssh "root@$1" "rm -f $pinning.new $pinning.pods" || true # it may be the node that cannot be reached
  echo "$1: $2" >&2
  exit 1
}

# has says whether a drop-in is on a node and next to the file. It copies it to the file present.
has() {
  local code=0
  [[ -n $rendered && -f $rendered$2 ]] || return 1
  ssh "root@$1" "[ ! -e $2 ] || { cat $2 && exit 3; }" >"$present" </dev/null || code=$?
  case $code in
    0) return 1 ;;
    3) ;;
    *) stop "$1" "cannot read $2" ;;
  esac
}

# decide sets drop_ins to those that a node gets. The kubelet's must have no other settings than the
# node's, but for reservedSystemCPUs: plan looks at the node's. The CPUs in it count as reserved
# there even if they no longer will be, so what is safe with them is safe without.
decide() {
  drop_ins=()
  if has "$1" "$crio"; then
    drop_ins+=("$crio")
  fi
  if has "$1" "$kubelet"; then
    if ! diff <(grep -v '^reservedSystemCPUs:' "$present") <(grep -v '^reservedSystemCPUs:' "$rendered$kubelet") >&2; then
      stop "$1" "$kubelet has other settings than $rendered$kubelet, as above; render it with these, or change the kubelet first"
    fi
    if grep -q '^reservedSystemCPUs:' "$present"; then
      drop_ins+=("$kubelet")
    fi
  fi
}

# change gives a node the file and its drop-ins, and restarts what reads them.
change() {
  local path units=kubelet
  for path in "${drop_ins[@]}"; do
    ssh "root@$1" "umask 022; cat > $pinning.drop-in && mv $pinning.drop-in $path" <"$rendered$path"
    if [[ $path == "$crio" ]]; then
      units="crio kubelet"
    fi
  done
  ssh "root@$1" "mv $pinning.new $pinning && systemctl restart $units"
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
present=$(mktemp)
trap 'rm -f "$findings" "$present"' EXIT
for node in "$@"; do
  echo "== $node"
  decide "$node"
  ssh "root@$node" "umask 077; cat > $pinning.new" <"$file"
  drained= code=0
  plan "$node" || code=$?
  if ((code == 1)); then
    cordoned=$(kubectl get node "$node" -o 'jsonpath={.spec.unschedulable}') || stop "$node" "cannot be read"
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
  # A cordon from before has another reason.
  if [[ -n $drained && $cordoned == true ]]; then
    echo "$node: it was cordoned before, and stays so" >&2
  elif [[ -n $drained ]]; then
    kubectl uncordon "$node"
  fi
done
