#!/usr/bin/env bash
# Run the tests of a target, test or test-all, in parts. Those that need a node mostly wait for
# it. The others compile and check; they run in parallel, with the CPU time that is left. The
# end-to-end tests need root, Linux and cgroups; where one is missing they are skipped, and the
# last lines say so.
#
# CI runs test. It has 90 minutes on two cores and may begin with empty caches, so test is to
# end within 45. What takes longer is part of test-all alone.
#
# A part that has passed for this content of the tree, with the same arguments, is not run again
# by test-all, whichever checkout it passed in. FORCE=1 runs it anyway, and a failure then counts.
# scripts/content.sh defines the content. why_no_stamp has what it cannot see.
# _output/results has a line for each part that ran: time, commit, target, part, result (ok, FAILED,
# skipped with the reason, or ended with the run), seconds, release, and the hash of the content if it is
# remembered, else "-". PART is an expression of the names of those that are to run; empty means all.
#
# RESULTS are such files of other hosts. What has passed there for this content counts as if it had passed here.
#
# After a part of test has failed, no further part begins. test-all goes on, since a night has room
# for more than one failure.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$1
release=$2
oldest=$3
# The script starts itself again with this, for the parts that run in parallel, with the directory
# of both and what keeps this host from running virtual machines.
beside=${4:-}
# Of make's flags, some let a part pass that has failed, or run nothing. Variables stay.
unset GNUMAKEFLAGS
MAKEFLAGS=${MAKEFLAGS:-}
MAKEFLAGS=${MAKEFLAGS#"${MAKEFLAGS%% -- *}"}
# Files that a strict umask keeps from others are useless to the users of systems that are made of them.
umask 022
mkdir -p _output
results=_output/results

passed=${XDG_CACHE_HOME:-${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}/.cache}/workload-partitioning/passed
mkdir -p "$passed"
find "$passed" -type f -mtime +13 -delete
find "$passed" -mindepth 1 -type d -empty -delete

# stamp TARGET ARGUMENTS prints the file that says that a part has passed for this content.
# make test runs some parts with fewer tests, and these are not the same part.
stamp() {
  local content words=$*
  content=$(scripts/content.sh "$release" "$@") || return # errexit does not hold in $(stamp)
  echo "$passed/$content-$release/${words//[^[:alnum:].]/-}"
}

# commit names what is checked out.
commit() {
  git rev-parse --short HEAD | tr -d '\n'
  [[ -z $(git status --porcelain) ]] || printf '+changes'
  echo
}

# named ARGUMENTS prints the releases that a part works on: the one of the nodes, and those that its commands name.
named() {
  local commands
  commands="$release $(make --no-print-directory --dry-run "RELEASE=$release" "$@")"
  basename --multiple build/releases/* | while read -r each; do
    [[ $commands != *"$each"* ]] || echo "$each"
  done
}

# why_no_stamp ARGUMENTS says why what passes now would not be what the content names: trees, Go and the environment are
# not of it. It looks at the trees of the release and of those that the arguments name. Those of others may be in the
# middle of a verification, and have been looked at before all parts: without arguments it looks at all.
why_no_stamp() {
  local each
  if [[ -n ${FORCE_HOST_GO:-} ]]; then
    echo "FORCE_HOST_GO selects this host's Go, not the one that upstream released with"
    return
  fi
  # GOFLAGS of the environment is in make's commands, and so in the content.
  each=$(scripts/settings.sh | grep --invert-match --line-regexp "${GOFLAGS:+GOFLAGS}" || true)
  if [[ -n $each ]]; then
    echo "${each//$'\n'/ and } may change what is compiled, and images are made without"
    return
  fi
  for each in $(basename --multiple build/releases/*); do
    if [[ (-z $* || " $release ${*//=/ } " == *" $each "*) && -n $(scripts/tree-changes.sh "$each") ]]; then
      echo "_output/$each/kubernetes has uncommitted changes"
      return
    fi
  done
}

# The files are words.
for file in ${RESULTS:-}; do
  if [[ ! -r $file ]]; then
    echo "make $target: RESULTS names $file, which cannot be read" >&2
    exit 1
  fi
done

at_start=
if [[ -z ${MISSING:-}${CONTENTS:-} ]]; then
  at_start=$(why_no_stamp)
fi

# why_other_go does so after a part: carry takes the installed Go if it cannot fetch upstream's, and writes that down.
why_other_go() {
  local each sums go
  for each in $(named "$@"); do
    go=_output/$each/kubernetes/.go-version
    for sums in _output/"$each"/{bin,race-bin,upstream-bin}/SHA256SUMS; do
      if [[ -e $sums && -e $go && $(head -n 1 "$sums") != *"built with go$(<"$go") "* ]]; then
        echo "$sums names another Go than $go; remove its directory once that can be fetched"
        return
      fi
    done
  done
}

# run runs a command in a separate session, so that finish can end it with all that it has started.
# A signal to this script does not wait for it. Linux gives each session its share of the CPUs, which
# is small for parallel parts. What runs in the background would ignore an interrupt.
child=
run() {
  setsid env --default-signal=INT,QUIT bash -c \
    '[[ -z $0 ]] || echo 19 >/proc/self/autogroup 2>/dev/null || true; exec "$@"' "$beside" "$@" </dev/null &
  child=$!
  local status=0
  wait "$child" || status=$?
  child=
  return $status
}

# record NAME RESULT SECONDS [CONTENT] adds a line to the results.
record() {
  printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$(date --utc +%FT%TZ)" "$(commit)" "$target" "$1" "$2" "$3" "${about:-$release}" "${4:--}" >>"$results"
}

# believe NAME CONTENT STAMP looks in RESULTS for a part, keeps its line, and leaves a stamp where there is none. A line
# is believed once: what fails here later has not passed.
believe() {
  local line fields
  if [[ -z ${RESULTS:-} ]]; then
    return
  fi
  # shellcheck disable=SC2086
  line=$(awk -F '\t' -v name="$1" -v about="$about" -v content="$2" -v since="$(date --utc --date='14 days ago' +%FT%TZ)" \
    '$4 == name && $5 == "ok" && $7 == about && $8 == content && $1 >= since' $RESULTS | sort | tail -n 1)
  if [[ -n $line ]] && ! grep --quiet --line-regexp --fixed-strings -e "$line" "$results" 2>/dev/null; then
    if [[ ! -e $3 ]]; then
      IFS=$'\t' read -r -a fields <<<"$line"
      mkdir -p "${3%/*}"
      echo "${fields[0]}, ${fields[5]} s, by RESULTS" >"$3"
      touch --date="${fields[0]}" "$3"
    fi
    echo "$line" >>"$results"
  fi
}

# under_way is the part that runs, for finish, and begun the second in which it began. about is the release that it is about.
under_way= begun=0 about=

# part NAME ARGUMENTS runs make. If it runs in parallel, its output is shown only if it fails.
part() {
  local name=$1 took log=/dev/null stamp content forgotten each
  shift
  about=$release
  for each in "$@"; do
    case $each in RELEASE=* | VERIFY=*) about=${each#*=} ;; esac
  done
  stamp=$(stamp "$@")
  content=${stamp%"-$release"/*}
  content=${content##*/}
  believe "$name" "$content" "$stamp"
  if [[ -n ${CONTENTS:-} ]]; then
    printf '%s\t%s\t%s\n' "$name" "$about" "$content"
    return
  fi
  if [[ -n ${MISSING:-} ]]; then
    [[ -e $stamp ]] || echo "$name"
    return
  fi
  if [[ ! $name =~ ${PART:-} ]]; then
    printf '%-44s not selected\n' "$name" >>"$work/summary"
    return
  fi
  [[ -z ${PART:-} ]] || touch "$work/asked"
  if [[ $target == test-all && -e $stamp && -z ${FORCE:-} ]]; then
    printf '%-44s passed before: %s\n' "$name" "$(<"$stamp")" >>"$work/summary"
    return
  fi
  if [[ -e $work/stop ]]; then
    printf '%-44s not run\n' "$name" >>"$work/summary"
    return
  fi
  forgotten=${at_start:-$(why_no_stamp "$@")}
  echo "=== $name${beside:+, in parallel}" >&2
  local command=(make --no-print-directory "RELEASE=$release" "$@" ${FORCE:+FRESH=1}) passes=true
  under_way=$name begun=$SECONDS
  if [[ -z $beside ]]; then
    run "${command[@]}" || passes=false
  else
    log=$work/${name//[^[:alnum:].]/-}
    run "${command[@]}" >"$log" 2>&1 || passes=false
  fi
  took=$((SECONDS - begun))
  if [[ $passes == false ]]; then
    rm -f "$stamp" # of an earlier run
    cat "$log" >&2
    record "$name" FAILED $took
    echo "=== $name FAILED after $took s" >&2
    printf '%-44s FAILED, %d s\n' "$name" $took >>"$work/summary"
    touch "$work/failed"
    if [[ $target == test || $name == "$binaries" ]]; then
      touch "$work/stop"
    fi
    return
  fi
  echo "=== $name ok after $took s" >&2
  forgotten=${forgotten:-$(why_no_stamp "$@")}
  forgotten=${forgotten:-$(why_other_go "$@")}
  if [[ $(stamp "$@") != "$stamp" ]]; then
    forgotten="the work tree has changed meanwhile"
  fi
  if [[ -z $forgotten ]]; then
    mkdir -p "${stamp%/*}"
    echo "$(date --utc +%FT%TZ), $took s" >"$stamp"
    record "$name" ok $took "$content"
  else
    record "$name" ok $took
    echo "=== $name is not remembered: $forgotten" >&2
  fi
  printf '%-44s ok %5d s\n' "$name" $took >>"$work/summary"
}

# why_no_vm says why virtual machines cannot run.
why_no_vm() {
  if [[ "$(uname -m)" != x86_64 ]]; then
    echo "virtual machines need an x86_64 host"
  elif ! grep -qx ID=debian /etc/os-release 2>/dev/null; then
    echo "virtual machines are made of Debian packages, but this host is not Debian"
  elif [[ "$(awk '$1 == "MemAvailable:" {print int($2 / 1024)}' /proc/meminfo)" -lt 8192 ]]; then
    echo "virtual machines and QEMU need 8192 MiB of memory, which this host lacks"
  elif ! scripts/install-packages.sh vm || ! type -P qemu-system-x86_64 >/dev/null || ! type -P debootstrap >/dev/null || ! type -P qemu-img >/dev/null; then
    echo "QEMU and debootstrap cannot be installed"
  fi
}

# why_no_conformance: its images are of Debian packages for one platform.
why_no_conformance() {
  if [[ "$(uname -m)" != x86_64 ]] || ! grep -qx ID=debian /etc/os-release 2>/dev/null; then
    echo "the images of the specs are made of Debian packages for x86_64, and this host is neither"
  fi
}

# why_no_browser says why there is none. make operators-browser installs it where that is possible.
why_no_browser() {
  if ! type -P chromium >/dev/null && { [[ "$(id -u)" != 0 ]] || ! type -P apt-get >/dev/null; }; then
    echo "chromium is missing and cannot be installed here"
  fi
}

why_no_time() {
  # The part after this takes 5 minutes, and on a busy host some more.
  if ((SECONDS > 40 * 60)); then
    echo "$((SECONDS / 60)) minutes of make $target had passed; make e2e-vm-core runs it"
  fi
}

skipped() {
  about=$release
  if [[ -n ${MISSING:-}${CONTENTS:-} ]]; then
    [[ -z ${MISSING:-} ]] || echo "$1"
    return
  fi
  [[ -z ${PART:-} || ! $1 =~ $PART ]] || touch "$work/asked"
  record "$1" "skipped: $2" 0
  printf '%-44s SKIPPED: %s\n' "$1" "$2" >>"$work/summary"
}

# node_part is a part that needs a node.
node_part() {
  if [[ -z $skip ]]; then
    part "$@"
  else
    skipped "$1" "$skip"
  fi
}

checks=
finish() {
  local group end=$((SECONDS + 300))
  if [[ -n $child ]]; then
    record "$under_way" ended $((SECONDS - begun))
    # gotestsum and go wait for the tests after an interrupt, and these remove what they have started.
    kill -INT -- "-$child" 2>/dev/null || kill "$child" 2>/dev/null || true
  fi
  if [[ -n $checks ]]; then
    kill -TERM -- "-$checks" 2>/dev/null || true
  fi
  for group in $child $checks; do
    while ((SECONDS < end)) && kill -0 -- "-$group" 2>/dev/null; do sleep 0.2; done
  done
  if [[ -z $beside ]]; then
    rm -rf "$work"
  fi
}

# run_checks runs the parts that need no node. The order is that in which a mistake shows
# soonest.
run_checks() {
  local why_no_vm=$1 short=()
  if [[ $target == test ]]; then
    short=(SHORT=-short)
  fi
  part "unit tests" unit "${short[@]}"
  part "lint" lint "${short[@]}"
  part "round trip of the series" round-trip
  part "the series applied to every release" lint-series
  if [[ -z $why_no_vm ]]; then
    FORCE=1 part "the system of virtual machines" vm-base # of this host, whatever passed before
  fi
  if [[ $target == test-all ]]; then
    local releases each
    # The release of the nodes comes last: a verification keeps others from its tree.
    mapfile -t releases < <(basename --multiple build/releases/* | grep -vFx "$release" | sort --version-sort --reverse)
    for each in "${releases[@]}" "$release"; do
      part "the series verified on $each" verify "VERIFY=$each"
    done
    part "rebase to other releases" rebase-test
    part "the same bytes elsewhere" reproducible
    part "what workload classes save" bench-classes
    # There may be a newer one since it passed.
    FORCE=1 part "the series on a pre-release" preview
  fi
}

# await_checks waits for the parts that run in parallel. Before a virtual machine it must: QEMU has
# work for all CPUs, and would leave them next to nothing.
await_checks() {
  wait "$checks" || touch "$work/failed" "$work/stop"
  checks=
}

# run_nodes runs the parts that need a node. It waits for the others on its way.
run_nodes() {
  local skip=$no_node short=()
  if [[ $target == test ]]; then
    short=(SHORT=-short)
  fi
  # They need no node, but its binaries.
  node_part "companions against a control plane" operators-test "${short[@]}"
  if [[ $target == test-all ]]; then
    node_part "the NUMA-aware scheduler" scheduler-test
    node_part "end-to-end tests on a real node" e2e
    # One run of the core shows two things: that it passes there, and that it passes with the race detector.
    node_part "end-to-end core on $oldest, race detector" e2e-race "RELEASE=$oldest"
    node_part "kubectl partition on a large cluster" e2e-plugin
    node_part "upstream's local cluster" local-up
    # All of conformance takes more than an hour. These are the specs that a kubelet decides about: of those of
    # nodes, all but the serial ones of NoExecuteTaintManager, and those that wait four minutes for nothing to happen.
    skip=${skip:-$(why_no_conformance)}
    node_part "conformance of nodes" conformance-compare \
      'FOCUS=\[sig-node\].*\[Conformance\]' 'SKIP=NoExecuteTaintManager|should \*not\* be restarted'
    skip=$no_node
    node_part "workload classes while calls of the API fail" operators-classes
    node_part "companions on a real node" operators-e2e
    skip=${skip:-$(why_no_browser)}
    node_part "the console of cpupolicy in a browser" operators-browser
    skip=$no_node
    await_checks
    skip=${skip:-$no_vm}
    # By the first letters of its tests, so that none is left out. Without OLDER, the unpatched kubelet does not run
    # there: it takes minutes, only to be compared with ours.
    local letters
    for letters in A-N O-Z; do
      node_part "virtual machine: the suite, $letters" e2e-vm 'E2E_RUN=^TestSuite$$' "E2E_SUITE=^Test[$letters]" OLDER=
    done
    node_part "virtual machine: a node's life, isolated CPUs" e2e-vm 'E2E_RUN=^Test(NodeSurvivesRebootsAndFailures|IsolatedCPUsChangeNoPool)$$'
    node_part "virtual machine: two nodes, host daemons" e2e-vm 'E2E_RUN=^Test(TypeIsActiveOnceBothNodesHaveIt|HostDaemonsOnThePool)$$'
    # All of them take half an hour. These are what the companion is for, kills and power cuts.
    node_part "virtual machine: companions" operators-e2e-vm 'E2E_RUN=/(gets_CPUs_of_its_own|killed_at_each_step|power_fails)'
    # All of the specs take an hour and a half. These are one or two of each kind.
    node_part "virtual machine: upstream's specs of kubelets" node-compare \
      'FOCUS=online non-exclusively|exclusively a CPU to multiple|running with SMT Alignment should admit|bigger than free memory|via the replace endpoint' SKIP=
    return
  fi
  node_part "companions on a real node" operators-e2e SHORT=-short
  # Without OLDER, no binaries of older releases are built.
  node_part "end-to-end tests on a real node" e2e OLDER= SHORT=-short
  await_checks
  skip=${skip:-$(why_no_time)}
  skip=${skip:-$no_vm}
  node_part "virtual machine: core" e2e-vm-core
  if [[ $oldest != "$release" ]]; then
    skipped "end-to-end core on $oldest, race detector" "its binaries take long to build; make test-all or make e2e-race RELEASE=$oldest runs it"
    skipped "TestKubeletsOfOlderReleasesKeepPools" "their binaries take long to build; make test-all or make e2e runs it"
  fi
  skipped "the long end-to-end tests" "they, and the unpatched binaries that they need, take a quarter of an hour; make test-all or make e2e runs them"
  skipped "workload classes with the real controllers of Machines" "OpenShift's and Cluster API's take long to compile; make test-all or make operators-test runs them"
  skipped "what workload classes save" "it imports the scheduler, and calculates for minutes; make test-all or make bench-classes does it"
  skipped "the roll-back of a companion on a real node" "it waits for a minute and a half; make test-all or make operators-e2e runs it"
  skipped "the companions with the race detector" "what they import takes long to compile; make test-all or make unit runs them"
  skipped "the NUMA-aware scheduler" "kube-scheduler and the kubelet's managers take long to compile; make test-all or make scheduler-test runs its tests"
  skipped "unit tests and lint of the alerts" "Prometheus' own code takes long to compile; make test-all, make unit and make lint do both"
  skipped "the specs of any cluster, and their lint" "upstream's test framework takes long to compile; make test-all or make e2e runs them"
  skipped "the series verified on every release" "the releases take long to compile; make test-all or make verify does it"
  skipped "rebase to other releases" "it needs still more releases; make test-all or make rebase-test does it"
  skipped "the same bytes elsewhere" "it compiles with an empty cache; make test-all or make reproducible does it"
  skipped "conformance" "its specs take more than an hour; make test-all runs those of nodes, and make conformance-compare all"
  skipped "the series on a pre-release" "it takes long to compile; make test-all or make preview does it"
  skipped "the rest in virtual machines" "it takes hours without KVM; make test-all or make e2e-vm runs it"
}

binaries="binaries"
trap 'exit 130' INT
trap 'exit 143' TERM
if [[ -n $beside ]]; then
  work=$beside
  trap finish EXIT
  # This counts against others of the session, or everywhere if sessions have no shares; see run.
  renice -n 19 $$ >/dev/null
  run_checks "$5"
  exit
fi

if [[ -n ${PART:-} ]]; then
  matches=0
  [[ '' =~ $PART ]] || matches=$?
  if ((matches > 1)); then
    echo "make $target: PART=$PART is not a regular expression" >&2
    exit 1
  fi
fi

# MISSING=1 runs nothing, and prints the parts of test-all that have not passed for this content. CONTENTS=1 prints
# all parts, each with its release and the hash of its content.
if [[ -n ${MISSING:-}${CONTENTS:-} ]]; then
  target=test-all no_node='' no_vm=''
  await_checks() { :; }
  part "$binaries" build
  run_checks ""
  run_nodes
  exit
fi

if [[ -n $at_start ]]; then
  echo "make $target: $at_start, so what passes is not remembered" >&2
fi
work=$(mktemp -d)
trap finish EXIT
make --no-print-directory packages # it is about this host, whatever passed before
# Once, before parallel parts need memory, or install packages.
no_node=$(scripts/why-no-node.sh)
no_vm=$(why_no_vm)
if [[ -z $no_node ]]; then
  # Parallel compilation must not keep a node waiting for its binaries.
  PART='' FORCE=1 part "$binaries" build # of this checkout, whatever passed before
fi
# A separate session, which is also a process group, to end it as a whole.
setsid scripts/test.sh "$target" "$release" "$oldest" "$work" "$no_node$no_vm" </dev/null &
checks=$!
run_nodes
printf '=== make %s of %s, in %d minutes\n' "$target" "$release" $((SECONDS / 60))
cat "$work/summary"
if [[ -n ${PART:-} && ! -e $work/asked ]]; then
  echo "make $target: PART=$PART matches none of these parts" >&2
  exit 1
fi
[[ ! -e $work/failed ]]
