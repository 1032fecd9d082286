#!/usr/bin/env bash
# Bring a minor version to the newest patch release that upstream has, commit that, and make images of
# it. These are the steps of docs/user/support.md, for users who wait for the fix of a CVE, so the
# time of each is printed. What is given to make, such as KEY, is also given to make images. Further arguments
# go to images build.
set -euo pipefail
cd "$(dirname "$0")/.."
minor=$1
platforms=$2
shift 2

fail() {
  echo "make update: $*" >&2
  exit 1
}

[[ $minor =~ ^v1\.[0-9]+$ ]] || fail "MINOR=\"$minor\" is not a minor version such as v1.36"
old=$(basename --multiple build/releases/* | grep "^${minor/./\\.}\.[0-9]*\$" || true)
[[ -n $old ]] || fail "MINOR=$minor: build/releases has no release of it; carry rebase takes one that is not known yet"
[[ $old != *$'\n'* ]] || fail "MINOR=$minor: build/releases has several releases of it (${old//$'\n'/, }); remove those that are not needed"
changes=$(git status --porcelain --untracked-files=all)
[[ -z $changes ]] || fail "this checkout has uncommitted changes, and this makes a commit; see git status"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# step NAME COMMAND... runs a step. errexit does not hold in its functions, so they join what they do
# with &&.
step() {
  local name=$1 begun=$SECONDS
  shift
  echo "=== $name" >&2
  "$@" || fail "$name: FAILED after $((SECONDS - begun)) s; the steps that are left are in docs/user/support.md"
  printf '%-44s %5d s\n' "$name" $((SECONDS - begun)) >>"$work/summary"
}

# Of the exit codes, 1 says that there is something newer.
outdated() { _output/bin/carry outdated >"$work/outdated" || (($? == 1)); }

# needs checks that the images' packages, bases and key can be downloaded.
needs() {
  local platform arguments=(--check --verify --release "$new" "$@")
  for platform in $platforms; do
    arguments+=(--bin "$platform=_output/$new/bin")
  done
  scripts/install-packages.sh images && _output/bin/images build "${arguments[@]}" "_output/$new/images"
}

rebase() { _output/bin/carry rebase "$new" --no-build 2>&1 | tee "$work/rebase" >&2; }

# replace removes the release that is replaced, and has the tables and commands of the pages name the new
# one.
replace() {
  local size go pages
  size=$(sed -nE "s/^$new: done: ([0-9]+) patches, ([0-9]+) of them overrides.*/\1 | \2/p" "$work/rebase") &&
    go=$(<"_output/$new/kubernetes/.go-version") &&
    git rm -r --quiet "build/releases/$old" &&
    [[ -n $size && -n $go ]] &&
    sed -i -E "s/^\| ${old//./\\.} \| [0-9]+ \| [0-9]+ \| Go [^ ]+ \|/| $new | $size | Go $go |/" README.md &&
    grep -qF "| $new | $size | Go $go |" README.md &&
    mapfile -t pages < <(git ls-files '*.md') &&
    sed -i -E -e "s/(RELEASE=|export-tree |_output\/)${old//./\\.}\>/\1$new/g" -e "/^[$] /s/${old//./\\.}\>/$new/g" -e "/RELEASES=\"/s/${old//./\\.}\>/$new/g" -e "s/\| ${old//./\\.} \|/| $new |/g" "${pages[@]}"
}

commit() {
  git add --all && git commit --quiet --message="patches: raise $old to $new" \
    --message="It is upstream's newest release of $minor that can be downloaded. The series applies to it, and to all others."
}

step "carry outdated" outdated
new=$(awk -v old="$old" '$1 == old {print $2}' "$work/outdated")
[[ -n $new ]] || fail "carry outdated names no release of $minor: see _output/bin/carry outdated"
# The fix may be in one of these.
sed -n "/^${minor/./\\.}\..* is listed but cannot be downloaded: /s/^/make update: /p" "$work/outdated" >&2
if [[ $new == "$old" ]]; then
  echo "make update: $old is the newest release of $minor that can be downloaded, and there is nothing to do; make images RELEASE=$old makes images" >&2
  exit
fi
step "what images need" needs "$@"
step "carry rebase $new" rebase
step "$old replaced" replace
step "make lint-series" make --no-print-directory lint-series
step "commit" commit
step "make images, with their verification" make --no-print-directory images "RELEASE=$new"
printf '=== %s replaces %s, in %d minutes; its images are in _output/%s/images, and make push RELEASE=%s REGISTRY=... pushes them\n' \
  "$new" "$old" $((SECONDS / 60)) "$new" "$new"
cat "$work/summary"
