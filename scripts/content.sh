#!/usr/bin/env bash
# content.sh RELEASE TARGET [ARGUMENTS] names what make TARGET works on: a hash of all files of the
# work tree, also of those not committed yet, and of the commands that make would run. Files that
# cannot change what the target does are left out.
set -euo pipefail
cd -P "$(dirname "$0")/.." # make prints the path without links
release=$1
shift

# irrelevant TARGET prints an expression of the paths that neither the commands of a target nor
# what they build and run read. A path belongs here only if that is plain: what is missing costs
# time, and what is wrong costs the truth.
irrelevant() {
  local text='[.]ci/|Makefile$|[A-Z]+[.]md$|docs/dev/|scripts/(check|content|generate|gofmt|images|ldflags|lint|operators-[a-z]+|release|reproducible|settings|test|tree-changes|update|vouched|why-no-node)[.]sh$|scripts/lint/|build/(lint|gotestsum)/'
  # Pages from which no test of a node reads anything.
  local pages='docs/user/(admission|alerts|companions|cpupolicy(-console)?|images|kubectl-partition-[a-z]+|limits|metrics|namespaces|objectives|openshift(-release)?|pinning-file|pods|security|support|tools|troubleshooting)[.]md$|docs/user/noise[.]svg$'
  # What of the companions the plugin does not import.
  local companions='operators/((cmd|companion|deploy|e2e|foreign|internal|mirror|nodeclient|operand|rollout)/|[a-z]+/(action|agentpod|controller|daemon|executor)/|.*_test[.]go$)'
  local beside="$text|$pages|cmd/.*_test[.]go$|$companions|build/(controller-gen|kubevirt)/|test/classes/|test/e2e/soak_bench_test[.]go$|test/e2e/internal/soak/"
  local conformance='build/coredns/|test/conformance/'
  # What carry does not do when it makes a tree and builds it.
  local carry='cmd/carry/internal/(check|exporttree|lint|outdated|preview|rebase|verify)/'
  case $1 in
    verify | preview) echo "^($beside|$conformance|docs/|cluster/|cmd/images/|cmd/kubectl-partition/|node/|test/)" ;;
    rebase-test) echo "^($text|$conformance|docs/|cmd/images/|operators/|build/(controller-gen|kubevirt)/|test/)" ;;
    # What it packs is not of Debian's packages, nor of this project's own programs.
    reproducible) echo "^(${text/reproducible|/}|docs/|cmd/.*_test[.]go$|cmd/kubectl-partition/|cluster/|operators/|build/(coredns|controller-gen|kubevirt)/|patches/openshift/|test/)" ;;
    e2e) echo "^($beside|$conformance|$carry|patches/openshift/)" ;;
    conformance-* | node-compare) echo "^($beside|$carry|patches/openshift/|cmd/kubectl-partition/|node/|test/e2e/)" ;;
    # These are tests below cmd.
    e2e-plugin) echo "^($text|$conformance|$carry|cmd/images/|$companions|patches/openshift/|test/e2e/)" ;;
    e2e-*) echo "^($beside|$conformance|$carry|cmd/images/|patches/openshift/)" ;;
    bench-classes) echo "^($text|docs/|cmd/|patches/|test/(conformance|e2e|workloadpartitioning)/)" ;;
    operators-*) echo "^(${text/operators-\[a-z\]+|/}|$conformance|$carry|patches/openshift/)" ;;
    *) echo '^$' ;;
  esac
}

mkdir -p _output
index=$(mktemp -u _output/index.XXXXXX)
trap 'rm -f "$index"' EXIT
cp "$(git rev-parse --git-path index)" "$index"
GIT_INDEX_FILE=$index git add --all
tree=$(GIT_INDEX_FILE=$index git write-tree)

commands=$(make --no-print-directory --dry-run "RELEASE=$release" "$@" | sed "s|$PWD|.|g")
# These are not in what make would print.
commands+=$(grep -E '^(SHELL|export [A-Z]|ifndef)' Makefile || true)
# What runs on nodes reads nothing of a release that its commands do not name.
named=.
case $1 in e2e* | conformance-* | node-compare | operators-*) named=$commands ;; esac
content=$(
  git ls-tree -r "$tree" | named=$named awk -F '\t' -v irrelevant="$(irrelevant "$1")" '
    $2 ~ irrelevant {next}
    match($2, "^build/releases/[^/]+/") && !index(ENVIRON["named"], substr($2, 16, RLENGTH - 16)) && ENVIRON["named"] != "." {next}
    {print}'
  echo "$commands"
)
git hash-object --stdin <<<"$content"
