#!/usr/bin/env bash
# previous.sh WHAT REVISION RELEASE builds what another revision of this project has, in a git worktree of that revision:
#
#   kubernetes        kubelet and kube-apiserver of the release, or of the newest before it that the revision knows, in
#                     _output/previous/bin
#   operators-images  what make install OPERATOR=... needs in _output/previous/companions to install companions. What no
#                     companion is made of is that of this checkout
#   chart             the companions' Helm chart, in _output/previous/companions/_output/chart
set -euo pipefail
cd "$(dirname "$0")/.."
what=$1
revision=$2
release=$3
commit=$(git rev-parse --verify --quiet "$revision^{commit}") || {
  echo "make: there is no revision \"$revision\" of this project in this checkout to upgrade from; fetch it, or name another: PREVIOUS= of make e2e, which may be empty, UPGRADE_FROM= of make operators-lifecycle, CHART_FROM= of make operators-chart-test" >&2
  exit 1
}
above=_output/previous
checkout=$above/companions
if [[ $what == kubernetes ]]; then
  checkout=$above/checkout
fi
if [[ -e $checkout/.git ]]; then
  git -C "$checkout" checkout --quiet --detach "$commit"
else
  git worktree prune
  git worktree add --quiet --detach "$checkout" "$commit"
fi
if [[ $what != kubernetes ]]; then
  mkdir -p "$checkout/_output/$release"
  ln -sfn "$PWD/_output/tools" "$checkout/_output/tools"
  ln -sfn "$PWD/_output/$release/bin" "$checkout/_output/$release/bin"
  echo "make $what, as $revision has it" >&2
  MAKEFLAGS='' make --no-print-directory --directory="$checkout" "$what"
  exit
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
