#!/usr/bin/env bash
# Write what is generated from the operators' Go files: deepcopy functions, CRDs and roles. With
# --check, write nothing, and fail if what is there is not what would be written.
set -euo pipefail
cd "$(dirname "$0")/.."
check=${1:-}
root=$PWD
out=$PWD/operators
if [[ -n $check ]]; then
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
fi
GOBIN=$PWD/_output/bin go install -C build/controller-gen tool
cd operators
generate() {
  "$root"/_output/bin/controller-gen "$@"
}

declare -A groups=([tuning]=tuned [numaresources]=nodetopology)

# move HERE ROLE THERE moves a role, such as that of a hosted cluster, out of the generated ones, which are for every cluster
# that the companion runs in.
move() {
  local here=$1 there=$3
  grep --quiet --line-regexp "  name: $2" "$here" || return 0
  mkdir -p "${there%/*}"
  awk -v name="$2" -v here="$here" -v there="$there" 'BEGIN {RS = "(^|\n)---\n"} NF {
    sub(/\n+$/, "")
    to = index("\n" $0 "\n", "\n  name: " name "\n") ? there : here ".rest"
    printf "---\n%s\n", $0 > to
  }' "$here"
  mv "$here.rest" "$here"
}

# rights COMPANION PACKAGES MANIFESTS writes roles: what a companion's own packages need, and what the manager does.
rights() {
  generate "rbac:roleName=$1" "paths={./cmd/partition-controller/app,./$2/...}" "output:rbac:dir=$out/$3/rbac"
  move "$out/$3/rbac/role.yaml" "$1-hosted" "$out/$3/hosted/role.yaml"
  move "$out/$3/rbac/role.yaml" "$1-ordinary" "$out/$3-ordinary/cluster/role.yaml"
}

for package in api/*/v[0-9]*; do
  mkdir -p "$out/$package"
  (cd api && generate object:headerFile=../../build/spdx.go.txt "paths=./${package#api/}" "output:object:dir=$out/$package")
done
for companion in deploy/*/kustomization.yaml; do
  companion=$(basename "$(dirname "$companion")")
  # Where the kinds of a companion have a group of their own name, its directory has that.
  group=${groups[$companion]:-$companion}
  if [[ -d api/$group ]]; then
    (cd api && generate crd "paths=./$group/..." "output:crd:dir=$out/deploy/$companion/crd")
  fi
  if [[ $companion == numaresources ]]; then
    # What its exporters write is another project's.
    generate crd paths=github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2 "output:crd:dir=$out/deploy/$companion/crd"
  fi
  if [[ -d $companion/controller ]]; then
    rights "$companion" "$companion" "deploy/$companion"
  fi
done
rights example internal/example internal/example/deploy

if [[ -n $check ]]; then
  {
    find "$out" -type f -printf '%P\n'
    git ls-files --cached --others --exclude-standard 'api/*/zz_generated.*' 'deploy/*/crd/*' ':!deploy/*/crd/kustomization.yaml' 'deploy/*/rbac/role.yaml' 'deploy/*/hosted/role.yaml' 'deploy/*/cluster/role.yaml' 'internal/*/role.yaml'
  } | sort -u | while read -r file; do
    diff -u --label "operators/$file" --label "operators/$file, generated" "$file" "$out/$file" >&2 || {
      echo "make generate writes operators/$file" >&2
      exit 1
    }
  done
fi
