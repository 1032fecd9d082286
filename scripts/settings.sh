#!/usr/bin/env bash
# settings.sh prints the names of what changes the programs that go and upstream's make rules compile: variables of the
# environment, and what go env -w has set. It leaves out what says whence go fetches, where it keeps what it has, and how
# much it may use, and whether go writes a commit into programs. Images are made without any of it. With --kept, it
# prints the names of what it leaves out.
set -euo pipefail
kept='GOAUTH GOCACHEPROG GOINSECURE GONOPROXY GONOSUMDB GOPRIVATE GOSUMDB GOTMPDIR GOVCS GOCACHE GOMODCACHE GOPATH GOPROXY GOTOOLCHAIN'
if [[ ${1:-} == --kept ]]; then
  echo "$kept"
  exit
fi
# With some variables go would refuse to print any.
go=(env --ignore-environment HOME="${HOME:-/}" PATH="$PATH" GOTOOLCHAIN=local go env)
file=${GOENV:-$("${go[@]}" GOENV)}
set_by_go() {
  [[ ! -f $file ]] || sed -nE '/^GOFLAGS=-buildvcs=false$/d; s/^([A-Z0-9_]+)=.+/\1/p' "$file"
}
known() {
  "${go[@]}" | sed -nE 's/^([A-Z0-9_]+)=.*/\1/p'
  compgen -e KUBE_ || true
  echo DBG
}
comm -12 <({ compgen -e; set_by_go; } | sort --unique) <(known | sort --unique) |
  grep --invert-match --line-regexp --extended-regexp "GOBIN|GOENV|${kept// /|}" || true
