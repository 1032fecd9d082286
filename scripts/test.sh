#!/usr/bin/env bash
# Run the tests of a target, test or test-all, in parts: scripts/parts has them, and what the environment may say.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/_output/go/bin:$PATH"
# Go comes with the packages, which are about this host, whatever passed before.
if [[ -z ${MISSING:-}${CONTENTS:-} ]] || ! type -P go >/dev/null; then
  env --unset=GNUMAKEFLAGS MAKEFLAGS= make --no-print-directory packages
fi
CGO_ENABLED=0 GOFLAGS=-trimpath GOTOOLCHAIN=${GOTOOLCHAIN:-auto} go build -buildvcs=false -o _output/bin/parts ./scripts/parts
exec _output/bin/parts "$@"
