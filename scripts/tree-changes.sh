#!/usr/bin/env bash
# tree-changes.sh RELEASE prints what is not committed in the tree of a release; nothing if there is no tree. go and
# editors add lines to go.work.sum, which carry does not count as work. It takes no lock: others may work there.
set -euo pipefail
tree=$(dirname "$0")/../_output/$1/kubernetes
if [[ -e $tree/.git ]]; then
  git --no-optional-locks -C "$tree" status --porcelain --untracked-files=all -- :/ ':(exclude,top)go.work.sum'
fi
