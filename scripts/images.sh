#!/usr/bin/env bash
# Build the binaries of a release and the kubectl plugin for each of the platforms, write images and
# packages of them, and start each program once. Further arguments go to images build.
set -euo pipefail
cd "$(dirname "$0")/.."
release=$1
platforms=$2
shift 2

scripts/install-packages.sh images
arguments=()
for platform in $platforms; do
  _output/bin/carry build --platform "$platform" "$release"
  bin=_output/$release/bin
  if [[ $platform != "$(go env GOHOSTOS)/$(go env GOHOSTARCH)" ]]; then
    bin+=-${platform/\//-}
  fi
  # Without cgo it is static on the platform of this host, too.
  own=_output/bin-${platform/\//-}
  echo "building kubectl-partition for $platform" >&2
  (
    cd cmd/kubectl-partition
    GOOS=${platform%/*} GOARCH=${platform#*/} CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o "../../$own/kubectl-partition" .
  )
  arguments+=(--bin "$platform=$bin" --bin "$platform=$own")
done
_output/bin/images build "${arguments[@]}" "$@" "_output/$release/images"
_output/bin/images verify "_output/$release/images"
