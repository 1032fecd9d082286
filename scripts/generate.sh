#!/usr/bin/env bash
# Write what is generated from the operators' Go files: deepcopy functions, CRDs and roles. The
# argument is the directory to write to, operators or one to compare it with.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p "$1"
out=$(realpath "$1")
GOBIN=$PWD/_output/bin go install -C build/controller-gen tool
cd operators
generate() {
  ../_output/bin/controller-gen "$@"
}

for package in api/*/*; do
  mkdir -p "$out/$package"
  generate object:headerFile=../build/boilerplate.go.txt "paths=./$package" "output:object:dir=$out/$package"
done
# A companion's role has what its own packages need, and what the manager does.
for companion in deploy/*/kustomization.yaml; do
  companion=$(basename "$(dirname "$companion")")
  if [[ -d api/$companion ]]; then
    generate crd "paths=./api/$companion/..." "output:crd:dir=$out/deploy/$companion/crd"
  fi
  if [[ -d $companion/controller ]]; then
    generate "rbac:roleName=$companion,fileName=role.yaml" "paths={./cmd/partition-controller/app,./$companion/controller}" "output:rbac:dir=$out/deploy/$companion/rbac"
  fi
done
