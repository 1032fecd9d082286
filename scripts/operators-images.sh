#!/usr/bin/env bash
# operators-images.sh PROGRAMS IMAGES [IMAGE...] makes images of the companions' programs in a directory, and further images of
# these programs, for this host's platform alone, into another directory. The tag follows from the programs, so that a changed one
# has another image, and nobody need commit it first. make images makes those of a release.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$1
to=$2
shift 2
programs=()
# topo-aware-scheduler takes minutes to compile, so only make scheduler builds it. A companion of the tests has no agent.
for program in partition-agent partition-controller partition-node topo-aware-scheduler; do
  [[ ! -e $bin/$program ]] || programs+=("$program")
done
images=("${programs[@]}" "$@")
tag=dev-$(cd "$bin" && cat "${programs[@]}" | sha256sum | head --bytes=12)
# Programs of what is not committed are not those of the commit.
commit=$(git rev-parse HEAD)
changes=$(git status --porcelain)
_output/bin/images build --only="$(IFS=,; echo "${images[*]}")" --version="$tag" \
  --bin="linux/$(go env GOHOSTARCH)=$bin" --commit="$commit${changes:+-dirty}" --date="$(git log -1 --format=%cI)" "$to"
