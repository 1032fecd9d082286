#!/usr/bin/env bash
# Run the tests of a target, test or test-all, in the order in which a mistake shows
# soonest. The end-to-end tests need root, Linux and cgroups; where one is missing they
# are skipped, and the last lines say so.
#
# CI runs test: it has 90 minutes on two cores, and may begin with empty caches. So test
# is to end within 60, and what takes longer is part of test-all alone.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$1
release=$2
oldest=$3

step() {
  local name=$1 start=$SECONDS
  shift
  echo "=== $name" >&2
  if ! make --no-print-directory "RELEASE=$release" "$@"; then
    echo "=== $name FAILED after $((SECONDS - start)) s" >&2
    exit 1
  fi
  summary+=("$(printf '%-40s ok %5d s' "$name" $((SECONDS - start)))")
}

why_no_node() {
  if [[ "$(uname -s)" != Linux ]]; then
    echo "this is not Linux"
  elif [[ "$(id -u)" != 0 ]]; then
    echo "a node needs root"
  elif [[ ! -d /sys/fs/cgroup ]] || ! grep -q cgroup /proc/filesystems; then
    echo "there are no cgroups"
  elif [[ "$(nproc)" -lt 2 ]]; then
    echo "a partitioned node needs two CPUs"
  fi
}

why_no_machine() {
  if [[ "$(uname -m)" != x86_64 ]]; then
    echo "machines are of x86_64, and this host is not"
  elif ! grep -qx ID=debian /etc/os-release 2>/dev/null; then
    echo "machines are made of Debian packages, and this host is not Debian"
  elif [[ "$(awk '$1 == "MemAvailable:" {print int($2 / 1024)}' /proc/meminfo)" -lt 8192 ]]; then
    echo "a machine needs 6 GiB of memory, and QEMU some more"
  elif ! scripts/install-packages.sh vm || ! type -P qemu-system-x86_64 >/dev/null || ! type -P debootstrap >/dev/null || ! type -P qemu-img >/dev/null; then
    echo "QEMU and debootstrap can not be installed"
  fi
}

why_no_time() {
  # The step after this takes 14 minutes, and on a busy host some more.
  if ((SECONDS > 45 * 60)); then
    echo "$((SECONDS / 60)) of the 60 minutes of make $target were gone; make e2e-vm-core runs it"
  fi
}

skipped() {
  summary+=("$(printf '%-40s SKIPPED: %s' "$1" "$2")")
}

# node_step is a step that needs a node.
node_step() {
  if [[ -z $skip ]]; then
    step "$@"
  else
    skipped "$1" "$skip"
  fi
}

summary=()
skip=$(why_no_node)
step "packages" packages
step "unit tests" unit
step "lint" lint
step "round trip of the series" round-trip
step "the series applied to every release" lint-series
if [[ $target == test-all ]]; then
  node_step "end-to-end tests on a real node" e2e
  step "the series verified on every release" verify
  step "rebase to other releases" rebase-test
  if [[ $oldest != "$release" ]]; then
    node_step "end-to-end core on $oldest" e2e-core "RELEASE=$oldest"
  fi
  skip=${skip:-$(why_no_machine)}
  node_step "end-to-end tests in machines" e2e-vm
else
  # Without OLDER, no binaries of older releases are built.
  node_step "end-to-end tests on a real node" e2e OLDER=
  skip=${skip:-$(why_no_time)}
  skip=${skip:-$(why_no_machine)}
  node_step "end-to-end core in a machine" e2e-vm-core
  if [[ $oldest != "$release" ]]; then
    skipped "end-to-end core on $oldest" "its binaries take long to build; make test-all or make e2e-core RELEASE=$oldest runs it"
    skipped "TestKubeletsOfOlderReleases" "their binaries take long to build; make test-all or make e2e runs it"
  fi
  skipped "the series verified on every release" "the releases take long to compile; make test-all or make verify does it"
  skipped "rebase to other releases" "it needs still more releases; make test-all or make rebase-test does it"
  skipped "all end-to-end tests in machines" "they take an hour and a half; make test-all or make e2e-vm runs them"
fi
printf '%s\n' "=== make $target of $release, in $((SECONDS / 60)) minutes" "${summary[@]}"
