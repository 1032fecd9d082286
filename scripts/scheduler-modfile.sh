#!/usr/bin/env bash
# Print the go.mod by which topo-aware-scheduler is built for a release of Kubernetes. That of its module is for the newest one. For another
# it is the same with the modules of that release: Kubernetes' own as build/releases pins them, the others as its go.mod requires them, and
# the plugin as carry makes it. It goes to _output/RELEASE with its go.sum. Of k8s.io/kubelet the scheduler has the types of what exporters ask a
# kubelet, which compile with those of the newest release alone. Go needs the release's minor version as a build tag, too.
set -euo pipefail
cd "$(dirname "$0")/.."
release=$1
pins=build/releases/$release
if grep -q "k8s.io/kubernetes $release\$" scheduler/go.mod; then
  echo "$PWD/scheduler/go.mod"
  exit
fi
_output/bin/carry plugin "$release"
plugin=build/scheduler-plugins/${release%.*}
[[ -e $plugin ]] || plugin=build/scheduler-plugins
go mod download -C "$pins" k8s.io/kubernetes
go mod download -C "$plugin" sigs.k8s.io/scheduler-plugins
kubernetes=$(go list -C "$pins" -m -f '{{.Dir}}' k8s.io/kubernetes)
read -r version plugin < <(go list -C "$plugin" -m -f '{{.Version}} {{.Dir}}' sigs.k8s.io/scheduler-plugins)
file=$PWD/_output/$release/scheduler.mod
cp scheduler/go.mod "$file"
mapfile -t changes < <(cat "$pins/go.mod" "$kubernetes/go.mod" | awk '
  $2 ~ /^v[0-9]/ && $2 != "v0.0.0" && $1 != "k8s.io/kubelet" && !($1 in seen) {seen[$1]; print "-replace=" $1 "=" $1 "@" $2}')
case $release in
v1.33.* | v1.34.* | v1.35.*) # The newest controller-runtime needs a newer client-go.
  changes+=("$(awk '$1 == "sigs.k8s.io/controller-runtime" {print "-replace=" $1 "=" $1 "@" $2}' "$plugin/go.mod")")
  ;;
esac
# Bills of materials name the version that is required.
go mod edit -require="sigs.k8s.io/scheduler-plugins@$version" -replace="sigs.k8s.io/scheduler-plugins=../_output/$release/scheduler-plugins" "${changes[@]}" "$file"
sort --unique scheduler/go.sum "$pins/go.sum" "$kubernetes/go.sum" "$plugin/go.sum" >"${file%mod}sum"
# Go adds the modules that only this release has.
go list -C scheduler -mod=mod -modfile="$file" -tags="${release%.*}" -deps -test ./cmd/... ./ledger ./plugin sigs.k8s.io/scheduler-plugins/pkg/... >/dev/null
echo "$file"
