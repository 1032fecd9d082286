#!/usr/bin/env bash
# Make images of the companions' programs in _output/bin, for this host's platform alone, into
# _output/operators/images. The tag follows from the programs, so that a changed one has another
# image, and nobody need commit it first. make images makes those of a release.
set -euo pipefail
cd "$(dirname "$0")/.."
programs=(partition-agent partition-controller)
tag=dev-$(cd _output/bin && cat "${programs[@]}" | sha256sum | head --bytes=12)
_output/bin/images build --only="$(IFS=,; echo "${programs[*]}")" --version="$tag" \
  --bin="linux/$(go env GOHOSTARCH)=_output/bin" --commit="$(git rev-parse HEAD)" --date="$(git log -1 --format=%cI)" _output/operators/images
