#!/usr/bin/env bash
# Install the Debian packages that building and running a node needs, and Go, if
# any of them is missing; with the argument vm, those of virtual machines, too, with images those
# of images, with export-tree those of upstream's scripts, and with browser a browser.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(
  git make gcc libc6-dev pkg-config # builds
  libseccomp-dev                    # runc
  busybox-static                    # images of the sample and the tests
  iptables iproute2 conntrack       # kube-proxy and the pod network
  kmod                              # kube-proxy loads modules
  rsync                             # upstream's scripts
  ca-certificates                   # fetching Go modules
)
if [[ ${1:-} == vm ]]; then
  packages+=(
    qemu-system-x86 qemu-utils # VMs and their disks
    debootstrap e2fsprogs      # the system in them
    openssh-client             # the key to them
  )
fi

if [[ ${1:-} == images ]]; then
  packages+=(
    debian-archive-keyring # the packages in images
    qemu-user-static       # starting programs of other platforms
  )
fi

if [[ ${1:-} == export-tree ]]; then
  packages+=(
    jq      # hack/update-vendor.sh and others
    python3 # hack/boilerplate
  )
fi

if [[ ${1:-} == browser ]]; then
  packages+=(chromium) # the tests of cpupolicy's console
fi

missing=()
for package in "${packages[@]}"; do
  [[ "$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null)" == installed ]] || missing+=("$package")
done

# Any Go that can fetch the one a go.mod asks for will do. Debian 12's cannot, but
# it can fetch that as a module, which is checked like every other.
go=$(sed -n 's/^go //p' go.mod)
need_go=false
if ! version=$(go env GOVERSION 2>/dev/null) || [[ "$(printf '%s\n' go1.21 "$version" | sort --version-sort | head -n 1)" != go1.21 ]]; then
  need_go=true
  [[ -x /usr/lib/go/bin/go || -x /usr/bin/go ]] || missing+=(golang-go)
fi
if [[ ${#missing[@]} -eq 0 && $need_go == false ]]; then
  exit 0
fi
if [[ ${#missing[@]} -gt 0 ]] && ! command -v apt-get >/dev/null; then
  echo "not Debian, so nothing is installed; what needs them will miss: ${missing[*]}" >&2
  exit 0
fi
if [[ ${#missing[@]} -gt 0 && "$(id -u)" != 0 ]]; then
  echo "not root, so nothing is installed; what needs them will miss: ${missing[*]}" >&2
  exit 0
fi
if [[ ${#missing[@]} -gt 0 ]]; then
  echo "installing ${missing[*]}" >&2
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
if [[ $need_go == true && ! -x _output/go/bin/go ]]; then
  echo "fetching Go $go" >&2
  bootstrap=$(command -v go || echo /usr/lib/go/bin/go)
  fetched=$(cd "$(mktemp -d)" && "$bootstrap" mod init fetch >/dev/null 2>&1 &&
    "$bootstrap" mod download -json "golang.org/toolchain@v0.0.1-go$go.linux-$("$bootstrap" env GOARCH)" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
  mkdir -p _output
  rm -rf _output/go.new
  cp -r "$fetched" _output/go.new
  chmod -R u+w _output/go.new
  chmod +x _output/go.new/bin/* _output/go.new/pkg/tool/*/*
  mv _output/go.new _output/go
fi
