#!/usr/bin/env bash
# Print the go.mod by which topo-aware-scheduler is built for a release of Kubernetes, v1.35 or newer. That of its module is for the newest one. For another
# it is the same with that release's modules, as build/releases pins them, and goes to _output/RELEASE with its go.sum. Of k8s.io/kubelet the
# scheduler has the types of what exporters ask a kubelet, which compile with those of the newest release alone.
set -euo pipefail
cd "$(dirname "$0")/.."
release=$1
pins=build/releases/$release
if grep -q "k8s.io/kubernetes $release\$" scheduler/go.mod; then
  echo "$PWD/scheduler/go.mod"
  exit
fi
file=$PWD/_output/$release/scheduler.mod
mkdir -p "_output/$release"
mapfile -t changes < <(awk '$1 ~ "^k8s.io/" && $1 != "k8s.io/kubelet" {print "-replace=" $1 "=" $1 "@" $2}' "$pins/go.mod")
case $release in
v1.33.* | v1.34.*)
  echo "topo-aware-scheduler cannot be built for $release: its framework has other types" >&2
  exit 1
  ;;
v1.35.*)
  # The newest controller-runtime needs a newer client-go. This one is upstream's plugin's, and what follows is Kubernetes' own.
  changes+=(-replace=sigs.k8s.io/controller-runtime=sigs.k8s.io/controller-runtime@v0.22.3
    -require=github.com/google/btree@v1.1.3 -require=github.com/grpc-ecosystem/go-grpc-prometheus@v1.2.0)
  ;;
esac
cp scheduler/go.mod "$file"
go mod edit "${changes[@]}" "$file"
go mod download -C build/scheduler-plugins sigs.k8s.io/scheduler-plugins
sort --unique scheduler/go.sum "$pins/go.sum" "$(go list -C build/scheduler-plugins -m -f '{{.Dir}}' sigs.k8s.io/scheduler-plugins)/go.sum" >"${file%mod}sum"
echo "$file"
