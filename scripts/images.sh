#!/usr/bin/env bash
# Build the binaries of a release, the kubectl plugin and the companions' programs for each of the
# platforms, write images and packages of them, and start each program once. Further arguments go to
# images build.
set -euo pipefail
cd "$(dirname "$0")/.."
release=$1
platforms=$2
shift 2

if [[ -n $(git status --porcelain) ]]; then
  echo "make images: this checkout has changes that are not committed, so nobody could say what is in the images; see git status" >&2
  exit 1
fi
scripts/install-packages.sh images
arguments=(--verify --release "$release" --commit "$(git rev-parse HEAD)" --date "$(git log -1 --format=%cI)" "$@")
for platform in $platforms; do
  bin=_output/$release/bin
  if [[ $platform != "$(go env GOHOSTOS)/$(go env GOHOSTARCH)" ]]; then
    bin+=-${platform/\//-}
  fi
  arguments+=(--bin "$platform=$bin" --bin "$platform=_output/bin-${platform/\//-}")
done
_output/bin/images build --check "${arguments[@]}" "_output/$release/images"
for platform in $platforms; do
  _output/bin/carry build --platform "$platform" "$release"
  # Without cgo they are static on the platform of this host, too. Go puts a commit into them in some
  # checkouts, and not in a git worktree.
  own=_output/bin-${platform/\//-}
  echo "building kubectl-partition and the companions' programs for $platform" >&2
  (
    export GOOS=${platform%/*} GOARCH=${platform#*/} CGO_ENABLED=0
    go build -C cmd/kubectl-partition -trimpath -buildvcs=false -ldflags='-s -w' -o "$PWD/$own/kubectl-partition" .
    go build -C operators -trimpath -buildvcs=false -ldflags='-s -w' -o "$PWD/$own/" ./cmd/...
  )
done
_output/bin/images build "${arguments[@]}" "_output/$release/images"
