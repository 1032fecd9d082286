#!/usr/bin/env bash
# Install the Debian packages that building and running a node needs, if any of
# them is missing. Go is not among them: see the README.
set -euo pipefail

packages=(
  git make gcc libc6-dev pkg-config # builds
  libseccomp-dev                    # runc
  busybox-static                    # images of the sample and the tests
  iptables iproute2 conntrack       # kube-proxy and the pod network
  rsync                             # upstream's scripts
)

missing=()
for package in "${packages[@]}"; do
  [[ "$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null)" == installed ]] || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then
  exit 0
fi
if ! command -v apt-get >/dev/null; then
  echo "not Debian: please install what corresponds to: ${missing[*]}" >&2
  exit 1
fi
if [[ "$(id -u)" != 0 ]]; then
  echo "not root: please install: ${missing[*]}" >&2
  exit 1
fi
echo "installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
