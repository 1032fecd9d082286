#!/usr/bin/env bash
# Check a change to Go code before it is committed, in less than two minutes with warm caches:
# the format, go vet and the unit tests of the modules given as arguments, and the series with
# our packages in the tree of a release. make test has what takes longer.
set -euo pipefail
cd "$(dirname "$0")/.."
release=$1
shift

scripts/gofmt.sh
# As the Makefile has it: what has been compiled for another test is not compiled again.
alike=(env CGO_ENABLED=0 GOFLAGS="-trimpath ${GOFLAGS:-}")
for module in "$@"; do
  echo "check of $module" >&2
  (
    cd "$module"
    if [[ $module == test/e2e ]]; then
      "${alike[@]}" go vet ./... # the others need a node
      "${alike[@]}" go test ./internal/... | { grep -v '^ok\|no test files' || true; }
    else
      # go test vets what it tests.
      "${alike[@]}" go test ./... | { grep -v '^ok\|no test files' || true; }
    fi
  )
done
_output/bin/carry lint "$release"
_output/bin/carry check "$release"
