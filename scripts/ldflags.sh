#!/usr/bin/env bash
# ldflags.sh prints the -ldflags of programs that tell their version. As no module of this project has its
# own tag, that is Go's pseudo-version of the commit, with +dirty if not all is committed
# (https://go.dev/ref/mod#pseudo-versions). They also send the commit to kube-apiserver, as part of their user
# agent. The variables are those of hack/lib/version.sh in upstream. Outside of a git checkout nothing sets them.
set -euo pipefail
cd "$(dirname "$0")/.."
flags=(-s -w)
if commit=$(git rev-parse HEAD 2>/dev/null); then
  version=v0.0.0-$(TZ=UTC git show --no-patch --no-show-signature --format=%cd --date=format-local:%Y%m%d%H%M%S HEAD)-${commit:0:12}
  changes=$(git status --porcelain)
  version+=${changes:++dirty}
  for package in component-base/version client-go/pkg/version; do
    flags+=(-X "k8s.io/$package.gitVersion=$version" -X "k8s.io/$package.gitCommit=$commit")
  done
fi
echo "${flags[*]}"
