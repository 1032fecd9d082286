#!/usr/bin/env bash
# Make images of the companions' programs in _output/bin, for this host's platform alone, into
# _output/operators/images. The tag follows from the programs, so that a changed one has another
# image, and nobody need commit it first. make images makes those of a release.
set -euo pipefail
cd "$(dirname "$0")/.."
programs=(partition-agent partition-controller partition-node)
# It takes minutes to compile, so only make scheduler builds it.
if [[ -e _output/bin/topo-aware-scheduler ]]; then
  programs+=(topo-aware-scheduler)
fi
images=("${programs[@]}" partition-tuned)
tag=dev-$(cd _output/bin && cat "${programs[@]}" | sha256sum | head --bytes=12)
# Programs of what is not committed are not those of the commit.
commit=$(git rev-parse HEAD)
changes=$(git status --porcelain)
_output/bin/images build --only="$(IFS=,; echo "${images[*]}")" --version="$tag" \
  --bin="linux/$(go env GOHOSTARCH)=_output/bin" --commit="$commit${changes:+-dirty}" --date="$(git log -1 --format=%cI)" _output/operators/images
