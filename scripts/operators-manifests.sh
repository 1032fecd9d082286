#!/usr/bin/env bash
# operators-manifests.sh COMPANION MANIFESTS IMAGES KUBECTL REGISTRY writes the manifests of a companion, which are in a directory,
# into _output/operators/deploy/COMPANION, with images that the nodes of kubectl's current cluster can have. The node of make up
# gets those in the directory IMAGES. Elsewhere they come from a registry, where make push has put them.
set -euo pipefail
cd "$(dirname "$0")/.."
operator=$1
manifests=$2
list=$3/images.txt
kubectl=$4
registry=$5

# Where cluster/host has the cluster of make up.
admin=/var/lib/workload-partitioning/admin.kubeconfig
socket=/run/workload-partitioning/containerd.sock

server() {
  "$kubectl" config view --minify --output='jsonpath={.clusters[0].cluster.server}' "$@"
}

fail() {
  echo "make install: $1" >&2
  exit 1
}

if [[ -n $registry ]]; then
  prefix=${registry%/}
  [[ -e $list ]] || fail "there is no $list, which says what is in $registry: make images, and make push REGISTRY=$registry"
else
  current=$(server)
  if [[ ! -S $socket || $current != "$(server --kubeconfig="$admin")" ]]; then
    fail "the nodes of $current take images from a registry: make images, make push REGISTRY=registry.example.com/path, and then make install OPERATOR=$operator REGISTRY=registry.example.com/path"
  fi
  prefix=workload.openshift.io
  for archive in "${list%/*}"/archives/*.tar; do
    _output/tools/ctr --address "$socket" --namespace k8s.io images import "$archive" >&2
  done
fi

# image prints the reference of an image in the list. In a registry that has the digest: the tag names
# the release and the series, so two commits of this project may have different images of one tag.
image() {
  local row
  row=$(awk -v name="$1:" '$2 == "all" && index($1, name) == 1 {print $1, $3}' "$list")
  [[ -n $row ]] || fail "$list has no image $1"
  if [[ -n $registry ]]; then
    echo "$prefix/$1@${row#* }"
  else
    echo "$prefix/${row% *}"
  fi
}

controller=$(image partition-controller)
[[ $controller == *@* ]] && version="newName: ${controller%@*}, digest: ${controller#*@}" || version="newName: ${controller%:*}, newTag: ${controller##*:}"
settings=(-e '')
for name in $(sed -n 's/^  [a-z]*Image: //p' "$manifests/config.yaml"); do
  if grep --quiet "^$name:" "$list"; then
    reference=$(image "$name")
    settings+=(-e "s|Image: $name\$|Image: $reference|")
  else # only make scheduler makes it
    settings+=(-e "/Image: $name\$/d")
  fi
done
# What the kubelet of make up has elsewhere than others do.
if [[ -z $registry ]]; then
  settings+=(-e "s|^\\( *\\)exporterImage: .*|&\\n\\1podResources: ${admin%/*}/kubelet/pod-resources\\n\\1kubeletCertificate: ${admin%/*}/pki/kubelet/kubelet.crt|")
fi
to=_output/operators/deploy/$operator
mkdir -p "$to"
sed "${settings[@]}" "$manifests/config.yaml" >"$to/config.yaml"
cat >"$to/kustomization.yaml" <<END
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../../../../$manifests]
images:
- {name: registry.invalid/partition-controller, $version}
configMapGenerator:
- {name: configuration, namespace: partition-$operator, behavior: replace, files: [config.yaml]}
END
patches=$(scripts/operators-foreign.sh "$manifests" "$kubectl")
# Where there is one node, a companion that has cordoned it must come back all the same: to be upgraded, or after its pod has gone.
# Elsewhere it would come back to a node that somebody drains.
if [[ $("$kubectl" get nodes --output=name | wc -l) == 1 ]]; then
  patches+='
- target: {kind: Deployment}
  patch: |-
    - {op: add, path: /spec/template/spec/tolerations/-, value: {key: node.kubernetes.io/unschedulable, operator: Exists, effect: NoSchedule}}'
fi
[[ -z $patches ]] || printf 'patches:\n%s\n' "$patches" >>"$to/kustomization.yaml"
