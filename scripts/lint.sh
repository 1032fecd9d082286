#!/usr/bin/env bash
# Check the Go modules given as arguments: gofmt, go mod tidy, go vet, staticcheck. Then
# check what is made from the sources, and what packages import.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

unformatted=$(git ls-files '*.go' | xargs gofmt -l)
if [[ -n $unformatted ]]; then
  echo "gofmt -w these files:" "$unformatted" >&2
  exit 1
fi
GOBIN=$root/_output/bin go install -C build/lint tool
for module in "$@"; do
  echo "lint of $module" >&2
  (
    cd "$module"
    go mod tidy -diff
    go vet ./...
    "$root/_output/bin/staticcheck" ./...
  )
done
echo "lint of documentation and imports" >&2
go test -count=1 ./scripts/lint
