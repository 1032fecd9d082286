#!/usr/bin/env bash
# operators-previous.sh REVISION RELEASE makes a checkout of another revision of this project in _output/operators/previous, from
# which make install OPERATOR=... installs the companions as that revision has them. What no companion is made of is that of
# this checkout.
set -euo pipefail
cd "$(dirname "$0")/.."
revision=$1
release=$2
commit=$(git rev-parse --verify --quiet "$revision^{commit}") || {
  echo "make operators-lifecycle: UPGRADE_FROM=$revision is not a revision of this checkout; name one" >&2
  exit 1
}
checkout=_output/operators/previous
if [[ -e $checkout/.git ]]; then
  git -C "$checkout" checkout --quiet --detach "$commit"
else
  git worktree prune
  git worktree add --quiet --detach "$checkout" "$commit"
fi
mkdir -p "$checkout/_output/$release"
ln -sfn "$PWD/_output/tools" "$checkout/_output/tools"
ln -sfn "$PWD/_output/$release/bin" "$checkout/_output/$release/bin"
echo "building the companions as $revision has them" >&2
MAKEFLAGS='' make --no-print-directory --directory="$checkout" operators-images
