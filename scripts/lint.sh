#!/usr/bin/env bash
# Check the Makefile, and the Go modules given as arguments: gofmt, go mod tidy, go vet, staticcheck.
# Then check what is made from the sources, our own manifests, and what packages import.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

scripts/gofmt.sh
# A rule's prerequisites are expanded where it stands. A variable that is set below is empty there.
if unset=$(LC_ALL=C make --no-print-directory --dry-run --warn-undefined-variables help 2>&1 >/dev/null | grep undefined); then
  echo "$unset" >&2
  exit 1
fi
# A fork that has our packages in its tree runs upstream's hack/verify-boilerplate.sh on them. Up
# to v1.34 that wants a year in the header, and from v1.35 on none after 2025.
header=$(<build/boilerplate.go.txt)
git ls-files --cached --others --exclude-standard --deduplicate 'pkg/*.go' 'openshift-kube-apiserver/*.go' 'staging/*.go' | while read -r file; do
  [[ -e $file ]] || continue # it was deleted, and that is not committed
  content=$(grep -v '^//go:build' "$file")
  while [[ $content == $'\n'* ]]; do
    content=${content#$'\n'}
  done
  if [[ $content != "$header"* ]]; then
    echo "$file does not begin with build/boilerplate.go.txt" >&2
    exit 1
  fi
done
# Everything else has one line.
git ls-files --cached --others --exclude-standard --deduplicate '*.go' ':!pkg' ':!openshift-kube-apiserver' ':!staging' | while read -r file; do
  # Generated files begin with a constraint.
  if [[ -e $file ]] && ! head -n 3 "$file" | grep --quiet --line-regexp --fixed-strings --file=build/spdx.go.txt; then
    echo "$file does not begin with the line of build/spdx.go.txt" >&2
    exit 1
  fi
done
# As the Makefile has it: what has been compiled for a test is not compiled again.
alike=(env CGO_ENABLED=0 GOFLAGS="-trimpath ${GOFLAGS:-}")
GOBIN=$root/_output/bin "${alike[@]}" go install -C build/lint tool
for module in "$@"; do
  echo "lint of $module" >&2
  (
    cd "$module"
    go mod tidy -diff
    "${alike[@]}" go vet ./...
    "${alike[@]}" "$root/_output/bin/staticcheck" ./...
  )
done
echo "lint of generated files" >&2
scripts/generate.sh --check
echo "lint of manifests" >&2
lint=("${alike[@]}" go run -C cmd/kubectl-partition . lint --require management)
# docs/user/examples/my-operator has the mistakes that docs/user/annotate.md corrects.
"${lint[@]}" "$root"/docs/user/examples/*.yaml "$root"/{cmd/kubectl-partition,operators,operators/internal/example}/deploy
"${lint[@]}" "$root/cluster/cmd/sample" --namespace-selector kubernetes.io/metadata.name=sample-management
echo "lint of documentation and imports" >&2
"${alike[@]}" go test -count=1 ./scripts/lint
