#!/usr/bin/env bash
# Gather a version of this project: images and packages of each of the releases, and what goes with
# them. Nothing is built unless all of make test-all has passed for this content on the newest and
# the oldest release. Further arguments go to images build.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$1
releases=$2
newest=$3
oldest=$4
platforms=$5
key=$6
url=$7
shift 7

# The releases are words.
# shellcheck disable=SC2206
arguments=("$version" $releases)

# parts VARIABLE has scripts/test.sh print the parts of make test-all. Whatever narrows tests, such as E2E_RUN, make
# takes from its environment, too.
parts() {
  env --ignore-environment HOME="$HOME" PATH="$PATH" ${XDG_CACHE_HOME:+XDG_CACHE_HOME="$XDG_CACHE_HOME"} \
    "$1=1" scripts/test.sh test-all "$newest" "$oldest"
}

# check refuses what cannot become a version. It takes a second, and a build takes long.
check() {
  local missing
  _output/bin/images bundle --check "${arguments[@]}"
  missing=$(parts MISSING)
  if [[ -n $missing ]]; then
    echo "make release: parts of make test-all have not passed for this content: ${missing//$'\n'/; }${GOFLAGS:+; with GOFLAGS=\"$GOFLAGS\" they do not count}" >&2
    exit 1
  fi
}

check
# The plugin also runs where kubectl does and no node.
elsewhere=$PLUGIN_PLATFORMS
for release in $releases; do
  PLUGIN_PLATFORMS=$([[ $release != "${releases##* }" ]] || echo "$elsewhere") \
    scripts/images.sh "$release" "$platforms" ${key:+--key="$key"} "$@"
done
check # there may be a new commit meanwhile
for platform in $platforms $elsewhere; do
  arguments+=(--bin "$platform=_output/bin-${platform/\//-}")
done
contents=$(parts CONTENTS)
_output/bin/images bundle "${arguments[@]}" ${key:+--key="$key"} ${url:+--url="$url"} --parts <(echo "$contents")
echo "make release: _output/release/$version has version $version; to name its commit: git tag --annotate $version $(git rev-parse HEAD)" >&2
