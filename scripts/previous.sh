#!/usr/bin/env bash
# Build kubelet and kube-apiserver as another revision of this project has them, in a git worktree
# of that revision: of a release, or of the newest before it if the revision does not know it. They
# are in _output/previous/bin afterwards.
set -euo pipefail
cd "$(dirname "$0")/.."
revision=$1
release=$2
commit=$(git rev-parse --verify --quiet "$revision^{commit}") || {
  echo "make e2e: PREVIOUS=$revision is not a revision of this checkout; fetch the tags, or leave it out with PREVIOUS=" >&2
  exit 1
}
above=_output/previous
checkout=$above/checkout
if [[ -e $checkout/.git ]]; then
  git -C "$checkout" checkout --quiet --detach "$commit"
else
  git worktree prune
  git worktree add --quiet --detach "$checkout" "$commit"
fi
if [[ ! -d $checkout/build/releases/$release ]]; then
  wanted=$release
  # A release candidate sorts before its release.
  release=$({
    ls "$checkout/build/releases"
    echo "$wanted"
  } | tr - "~" | sort --version-sort | tr "~" - | awk -v wanted="$wanted" '$0 == wanted {exit} {print}' | tail -n 1)
  if [[ -z $release ]]; then
    echo "make e2e: PREVIOUS=$revision knows neither $wanted nor an older release; leave it out with PREVIOUS=" >&2
    exit 1
  fi
fi
echo "building kubelet and kube-apiserver of $release as $revision has them" >&2
(cd "$checkout/cmd/carry" && go build -o ../../_output/bin/carry .)
(cd "$checkout" && _output/bin/carry build "$release" kubelet kube-apiserver)
ln -sfn "checkout/_output/$release/bin" "$above/bin"
