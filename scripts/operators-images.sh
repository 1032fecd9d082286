#!/usr/bin/env bash
# operators-images.sh PROGRAMS SCHEDULER IMAGES [IMAGE...] makes images of the companions' programs in a directory, of the
# scheduler of a release if there is that file, and further images of these programs, for this host's platform alone, into another
# directory. The tag follows from the programs, so that a changed one has another image, and nobody need commit it first. make
# images makes those of a release.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$1
scheduler=$2
to=$3
shift 3
programs=()
# The scheduler takes minutes to compile, so only make scheduler builds it. A companion of the tests has no agent.
for program in "$bin"/partition-{agent,controller,node} "$scheduler"; do
  [[ ! -e $program ]] || programs+=("$program")
done
images=("${programs[@]##*/}" "$@")
tag=dev-$(cat "${programs[@]}" | sha256sum | head --bytes=12)
platform=linux/$(go env GOHOSTARCH)
# Programs of what is not committed are not those of the commit.
commit=$(git rev-parse HEAD)
changes=$(git status --porcelain)
_output/bin/images build --only="$(IFS=,; echo "${images[*]}")" --version="$tag" \
  --bin="$platform=$(dirname "$scheduler")" --bin="$platform=$bin" --commit="$commit${changes:+-dirty}" --date="$(git log -1 --no-show-signature --format=%cI)" "$to"
