#!/usr/bin/env bash
# Install the Debian packages that building and running a node needs, and Go, if
# any of them is missing; with the argument vm, those of virtual machines, too, with images those
# of images, with export-tree those of upstream's scripts, with local-up those of hack/local-up-cluster.sh, with crio
# those that CRI-O runs, with browser a browser, and with tuned TuneD, where no systemd would start it.
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
    debian-archive-keyring     # who signs its packages
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

if [[ ${1:-} == local-up ]]; then
  packages+=(golang-cfssl sudo openssl curl) # hack/local-up-cluster.sh
fi

if [[ ${1:-} == crio ]]; then
  packages+=(conmon skopeo) # how CRI-O runs containers, and how the tests give it images
fi

if [[ ${1:-} == browser ]]; then
  packages+=(chromium) # the tests of cpupolicy's console
fi

if [[ ${1:-} == tuned && ! -e /usr/sbin/tuned ]]; then
  if [[ -d /run/systemd/system ]]; then
    echo "tests with TuneD are skipped: it is not installed, and Debian's package would tune this host" >&2
  else
    packages+=(tuned)
  fi
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
# install waits for other processes that have apt's locks, as they have on a host that has just booted. Only apt-get
# install can wait for them itself.
install() {
  local said tries
  export DEBIAN_FRONTEND=noninteractive
  for ((tries = 0; tries < 60; tries++)); do
    if said=$(apt-get update -qq 2>&1); then
      break
    fi
    [[ $said == *"Could not get lock"* ]] || break
    ((tries > 0)) || echo "waiting for another apt-get to end" >&2
    sleep 5
  done
  [[ -z $said ]] || echo "$said" >&2
  apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "$@" >/dev/null
}

if [[ ${#missing[@]} -gt 0 ]]; then
  if ! command -v apt-get >/dev/null; then
    echo "not Debian, so nothing is installed; missing: ${missing[*]}" >&2
  elif [[ "$(id -u)" != 0 ]]; then
    echo "not root, so nothing is installed; missing: ${missing[*]}" >&2
  else
    echo "installing ${missing[*]}" >&2
    install "${missing[@]}"
  fi
fi
if [[ $need_go == true && ! -x _output/go/bin/go ]]; then
  bootstrap=$(command -v go || echo /usr/lib/go/bin/go)
  if [[ ! -x $bootstrap ]]; then
    exit 0 # golang-go is among what is missing
  fi
  echo "fetching Go $go" >&2
  # Of no go.sum, and an old go asks the checksum database about it only if it is told to.
  if [[ $("$bootstrap" env GOSUMDB) == off ]]; then
    echo "Go $go is not fetched, since no checksum database would vouch for it: GOSUMDB is off" >&2
    exit 1
  fi
  module=golang.org/toolchain@v0.0.1-go$go.linux-$("$bootstrap" env GOARCH)
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  if ! (cd "$work" && "$bootstrap" mod init fetch && GONOSUMDB=none "$bootstrap" mod download -json "$module") >"$work/said" 2>&1; then
    echo "Go $go cannot be fetched as the module $module, and $("$bootstrap" env GOVERSION) is too old: $(sed -n 's/^\t"Error": "\(.*\)",*$/\1/p' "$work/said")" >&2
    exit 1
  fi
  mkdir -p _output
  rm -rf _output/go.new
  cp -r "$(sed -n 's/^\t"Dir": "\(.*\)",$/\1/p' "$work/said")" _output/go.new
  chmod -R u+w _output/go.new
  chmod +x _output/go.new/bin/* _output/go.new/pkg/tool/*/*
  mv _output/go.new _output/go
fi
