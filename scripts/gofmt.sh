#!/usr/bin/env bash
# Fail if a Go file, committed or not, is not formatted by gofmt.
set -euo pipefail
cd "$(dirname "$0")/.."
# git lists files that have been removed and not committed, too.
unformatted=$(git ls-files --cached --others --exclude-standard '*.go' | while read -r file; do [[ ! -e $file ]] || echo "$file"; done | xargs gofmt -l)
if [[ -n $unformatted ]]; then
  echo "gofmt -w these files:" "$unformatted" >&2
  exit 1
fi
