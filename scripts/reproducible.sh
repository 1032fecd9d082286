#!/usr/bin/env bash
# Build kubelet and kube-apiserver of a release a second time, in another directory, with
# an empty build cache, and see that commit and bytes are the same.
set -euo pipefail
cd "$(dirname "$0")/.."
release=$1
here=$PWD
other=$(mktemp -d)
trap 'chmod -R u+w "$other"; rm -rf "$other"' EXIT
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$other"
cd "$other"
mkdir -p _output/bin
(cd cmd/carry && go build -o ../../_output/bin/carry .)
GOCACHE=$other/cache _output/bin/carry build "$release" kubelet kube-apiserver
for name in kubelet kube-apiserver; do
  cmp "_output/$release/bin/$name" "$here/_output/$release/bin/$name"
done
sed -n '1p; / kube\(let\|-apiserver\)$/p' "_output/$release/bin/SHA256SUMS"
