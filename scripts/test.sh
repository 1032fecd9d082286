#!/usr/bin/env bash
# Run all tests, in the order in which a mistake shows soonest. The end-to-end tests
# need root, Linux and cgroups; where one is missing they are skipped, and the last
# lines say so.
set -euo pipefail
cd "$(dirname "$0")/.."
release=$1
oldest=$2

step() {
  local name=$1 start=$SECONDS
  shift
  echo "=== $name" >&2
  if ! make --no-print-directory "RELEASE=$release" "$@"; then
    echo "=== $name FAILED after $((SECONDS - start)) s" >&2
    exit 1
  fi
  summary+=("$(printf '%-36s ok %5d s' "$name" $((SECONDS - start)))")
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

# node_step is a step that needs a node.
node_step() {
  if [[ -z $skip ]]; then
    step "$@"
  else
    summary+=("$(printf '%-36s SKIPPED: %s' "$1" "$skip")")
  fi
}

summary=()
skip=$(why_no_node)
step "packages" packages
step "unit tests" unit
step "lint" lint
step "round trip of the series" round-trip
node_step "end-to-end tests on a real node" e2e
step "the series on every release" verify
step "rebase to other releases" rebase-test
if [[ $oldest != "$release" ]]; then
  node_step "core of the same on $oldest" e2e-core "RELEASE=$oldest"
fi
skip=${skip:-$(why_no_machine)}
node_step "core of the same in a machine" e2e-vm-core
printf '%s\n' "=== all tests of $release" "${summary[@]}"
