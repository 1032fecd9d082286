#!/usr/bin/env bash
# Build kubelet and kube-apiserver of a release a second time, in another directory, with an empty build cache and with
# tools that were built there, and make kube-apiserver's image and the kubelet's packages of each. See that commit and
# bytes are the same.
set -euo pipefail
cd "$(dirname "$0")/.."
release=$1
here=$PWD
# This checkout's commit is part of what images says of an image, and the copy is not a git checkout.
arguments=(--only=kube-apiserver,kubelet --commit="$(git rev-parse HEAD)" --date="$(git log -1 --no-show-signature --format=%cI)"
  --bin="$(go env GOHOSTOS)/$(go env GOHOSTARCH)=_output/$release/bin")

# make_images builds in the current directory and packs what it has built.
make_images() {
  # Lines that go adds to go.work.sum would make it a change that is not committed.
  if [[ -e _output/$release/kubernetes ]]; then
    git -C "_output/$release/kubernetes" checkout --quiet HEAD -- go.work.sum
  fi
  _output/bin/carry build "$release" kubelet kube-apiserver kube-log-runner
  _output/bin/images build "${arguments[@]}" "_output/$release/reproduced"
}

other=$(mktemp -d)
trap 'chmod -R u+w "$other"; rm -rf "$other" "$here/_output/$release/reproduced"' EXIT
make_images
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$other"
cd "$other"
mkdir -p _output/bin
for tool in carry images; do
  (cd "cmd/$tool" && CGO_ENABLED=0 go build -trimpath -o "../../_output/bin/$tool" .)
done
GOCACHE=$other/cache make_images
for name in kubelet kube-apiserver kube-log-runner; do
  cmp "_output/$release/bin/$name" "$here/_output/$release/bin/$name"
done
diff --recursive "_output/$release/reproduced" "$here/_output/$release/reproduced"
sed -n '1p; / kube\(let\|-apiserver\)$/p' "_output/$release/bin/SHA256SUMS"
cat "_output/$release/reproduced/images.txt"
