# shellcheck shell=bash
# vouched.sh is sourced where a compiler is chosen that programs for others are made with. No go.sum names compilers.
# go asks the checksum database about each that it fetches or has fetched, even with GOSUMDB=off, which then is an
# error; but not where all modules come from one directory, nor in what builds its own proxy (useSumDB in
# cmd/go/internal/modfetch). Neither is so after this.
unset GIT_HTTP_USER_AGENT
if [[ ${GOPROXY:=$(go env GOPROXY)} == file://* ]]; then
  GOPROXY+=,$GOPROXY # no longer one, and where go finds them stays the same
fi
export GOPROXY
