#!/usr/bin/env bash
# Build the binaries of a release, the kubectl plugin and the companions' programs for each of the
# platforms, write images and packages of them, and start each program once. Before the release, --fips has all programs be
# in FIPS mode. Further arguments go to images build.
set -euo pipefail
cd "$(dirname "$0")/.."
form=
if [[ $1 == --fips ]]; then
  form=fips-
  shift
fi
release=$1
platforms=$2
shift 2
if [[ -n ${FORCE_HOST_GO:-} ]]; then
  echo "make images: FORCE_HOST_GO selects this host's Go, but images need the Go that upstream released with" >&2
  exit 1
fi

# A directory that an outer repository ignores would look clean, and have that repository's commit.
above=$(git rev-parse --show-prefix)
if [[ -n $above ]]; then
  echo "make images: $PWD is not the root of a checkout but $above in another one, so the images would not be reproducible" >&2
  exit 1
fi

# unchanged COMMIT refuses a checkout that is not at the commit, or has something that is not committed.
unchanged() {
  local changes
  changes=$(git status --porcelain --untracked-files=all)
  if [[ -n $changes ]]; then
    echo "make images: this checkout has uncommitted changes, so the images would not be reproducible; see git status" >&2
    exit 1
  fi
  if [[ $(git rev-parse HEAD) != "$1" ]]; then
    echo "make images: this checkout was at $1, but HEAD has moved meanwhile; make images again" >&2
    exit 1
  fi
}

tree=_output/$release/kubernetes
# unchanged_tree refuses a tree that has something that is not committed: its binaries would have no commit. Lines that
# go.work.sum has besides are a change to go build. They go.
unchanged_tree() {
  if [[ ! -e $tree/.git ]]; then
    return # carry makes it
  fi
  local changes
  changes=$(scripts/tree-changes.sh "$release")
  if [[ -n $changes ]]; then
    echo "make images: $tree has uncommitted changes, so the images would not be reproducible; see git -C $tree status" >&2
    exit 1
  fi
  git -C "$tree" checkout --quiet HEAD -- go.work.sum
}

commit=$(git rev-parse HEAD)
unchanged "$commit"
unchanged_tree
scripts/install-packages.sh images
arguments=(--verify --release "$release" --commit "$commit" --date "$(git log -1 --no-show-signature --format=%cI "$commit")" "$@")
for platform in $platforms; do
  bin=_output/$release/${form}bin
  if [[ $platform != "$(go env GOHOSTOS)/$(go env GOHOSTARCH)" ]]; then
    bin+=-${platform/\//-}
  fi
  arguments+=(--bin "$platform=_output/$release/${form}scheduler-bin-${platform/\//-}" --bin "$platform=$bin" --bin "$platform=_output/${form}bin-${platform/\//-}")
done
_output/bin/images build --check "${arguments[@]}" "_output/$release/${form}images"
# Nothing in the environment or from go env -w may change a program: images name a commit. Kept is
# what says whence go fetches, where it keeps what it has, and how much it may use.
read -r -a settings < <(scripts/settings.sh --kept)
lines=$(go env "${settings[@]}")
mapfile -t values <<<"$lines"
for name in $(compgen -e); do
  case $name in
    GOGC | GOMAXPROCS | GOMEMLIMIT | GOOGLE_*) ;; # GOAUTH may run a program that needs these.
    AR | CC | CXX | PKG_CONFIG | DBG | CGO_* | GO* | KUBE_*) unset "$name" ;;
  esac
done
for i in "${!settings[@]}"; do
  export "${settings[i]}=${values[i]}"
done
# No go.work of a directory above, either.
export GOENV=off GOWORK=off
source scripts/vouched.sh
# The plugin and the companions are built with the Go of the newest release, whatever this host has. Every
# platform is the least of its kind.
export GOAMD64=v1 GOARM64=v8.0
newest=$(basename --multiple build/releases/* | tr - '~' | sort --version-sort | tr '~' - | tail -1)
go mod download -C "build/releases/$newest" k8s.io/kubernetes
go=go$(<"$(go list -C "build/releases/$newest" -m -f '{{.Dir}}' k8s.io/kubernetes)/.go-version")
ldflags=$(scripts/ldflags.sh)
_output/bin/carry plugin
modfile=$(scripts/scheduler-modfile.sh "$release")
for platform in $platforms; do
  unchanged_tree
  _output/bin/carry build ${form:+--fips} --exact-go --platform "$platform" "$release"
  # Without cgo they are static on the platform of this host, too. Go puts a commit into them in some
  # checkouts, and not in a git worktree.
  own=_output/${form}bin-${platform/\//-}
  echo "building kubectl-partition, the companions' programs and topo-aware-scheduler for $platform" >&2
  (
    export GOOS=${platform%/*} GOARCH=${platform#*/} CGO_ENABLED=0 GOTOOLCHAIN=$go GOFIPS140=${form:+certified}
    go build -C cmd/kubectl-partition -trimpath -buildvcs=false -ldflags="$ldflags" -o "$PWD/$own/kubectl-partition" .
    go build -C operators -trimpath -buildvcs=false -ldflags="$ldflags" -o "$PWD/$own/" ./cmd/...
    go build -C scheduler -modfile="$modfile" -tags="${release%.*}" -trimpath -buildvcs=false -ldflags="$ldflags" -o "$PWD/_output/$release/${form}scheduler-bin-${platform/\//-}/" ./cmd/...
  )
done
# PLUGIN_PLATFORMS are those of the plugin besides.
for platform in ${PLUGIN_PLATFORMS:-}; do
  echo "building kubectl-partition for $platform" >&2
  # go build adds .exe where it is needed, to the name in a directory.
  GOOS=${platform%/*} GOARCH=${platform#*/} CGO_ENABLED=0 GOTOOLCHAIN=$go \
    go build -C cmd/kubectl-partition -trimpath -buildvcs=false -ldflags="$ldflags" -o "$PWD/_output/bin-${platform/\//-}/" .
done
make --no-print-directory chart
unchanged "$commit"
_output/bin/images build --chart _output/chart "${arguments[@]}" "_output/$release/${form}images"
