#!/usr/bin/env bash
# Print the go.mod by which topo-aware-scheduler is built for a release of Kubernetes. That of its module is for the newest one. For another it is
# the same with that release's modules, as build/releases pins them, and goes to _output/RELEASE with its go.sum. Of k8s.io/kubelet the
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
mapfile -t replaced < <(awk '$1 ~ "^k8s.io/" && $1 != "k8s.io/kubelet" {print "-replace=" $1 "=" $1 "@" $2}' "$pins/go.mod")
cp scheduler/go.mod "$file"
go mod edit "${replaced[@]}" "$file"
sort --unique scheduler/go.sum "$pins/go.sum" >"${file%mod}sum"
echo "$file"
