#!/usr/bin/env bash
# Name the content of the work tree, with what is not committed yet: the hash of a git tree.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p _output
index=$(mktemp -u _output/index.XXXXXX)
trap 'rm -f "$index"' EXIT
cp "$(git rev-parse --git-path index)" "$index"
GIT_INDEX_FILE=$index git add --all
GIT_INDEX_FILE=$index git write-tree
