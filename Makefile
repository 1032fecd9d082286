# make help lists the targets.

SHELL := /usr/bin/env bash -o errexit -o nounset -o pipefail
.DEFAULT_GOAL := help

# scripts/install-packages.sh puts a Go there if the host has none, or too old a one.
export PATH := $(CURDIR)/_output/go/bin:$(PATH)
# It fetches a newer Go if a go.mod demands one, unless FORCE_HOST_GO forbids it. Images with Go, and Debian's own,
# would refuse.
ifndef FORCE_HOST_GO
export GOTOOLCHAIN := $(or $(filter-out local,$(value GOTOOLCHAIN)),auto)
endif
.NOTPARALLEL:

# RELEASE defaults to the newest known one, and RELEASES are all known ones.
# A release candidate sorts before its release.
KNOWN    := $(shell ls build/releases | tr - "~" | sort --version-sort | tr "~" -)
RELEASES := $(KNOWN)
RELEASE  ?= $(lastword $(KNOWN))
OUT     := _output
CARRY   := $(OUT)/bin/carry
CLUSTER := $(OUT)/bin/cluster
PLUGIN  := $(OUT)/bin/kubectl-partition
SPECS   := $(OUT)/bin/workloadpartitioning.test
IMAGES  := $(OUT)/bin/images
BIN     := $(OUT)/$(RELEASE)/bin
TREE    := $(OUT)/$(RELEASE)/kubernetes
TOOLS   := $(OUT)/tools
GOTESTSUM := $(OUT)/bin/gotestsum
GOFLAGS ?=
# ALIKE is the environment in which all of ours is compiled that runs without the race detector, so
# that what commands, tests and lint import alike is compiled once.
ALIKE := CGO_ENABLED=0 GOFLAGS="-trimpath $(GOFLAGS)"
# GOTEST is go test -v, which prints failures again at the end.
GOTEST = $(ALIKE) "$(CURDIR)/$(GOTESTSUM)" --format=standard-verbose --hide-summary=skipped --
# E2E_RUN selects end-to-end tests by name; empty is all. SHORT=-short leaves out the long ones,
# with the unpatched binaries and kwok, which only they need, and unit tests and lint of what takes
# minutes to compile. OLDER are the releases of which kubelets are tried with RELEASE's control
# plane.
E2E_RUN ?=
SHORT   ?=
# VM_SUITE is the suite of package e2e that runs in a VM, and E2E_SUITE selects tests of it
# by name.
VM_SUITE ?= vm
E2E_SUITE ?=
TOPOLOGY ?= 2x2x2
OLDER   ?= $(shell printf "%s\n" $(KNOWN) | awk '$$0 == "$(RELEASE)" {exit} {print}' | tail -n 2)
OLDEST  := $(firstword $(KNOWN))
# PREVIOUS is a revision of this project: its previous version, with which upgrades are tried. Empty
# means that there is none.
PREVIOUS ?= $(shell git -c versionsort.suffix=- tag --list --merged HEAD --no-contains HEAD --sort=-version:refname "v[0-9]*" 2>/dev/null | head -n 1)
empty :=
CONTROL_PLANE_IMAGES := $(OUT)/$(RELEASE)/control-plane-images
E2E_ARGS = -older-bin="$(subst $(empty) ,:,$(OLDER:%=$(CURDIR)/$(OUT)/%/bin))" -bin="$(CURDIR)/$(BIN)" -upstream-bin="$(CURDIR)/$(OUT)/$(RELEASE)/upstream-bin" -tools="$(CURDIR)/$(TOOLS)" -tree="$(CURDIR)/$(TREE)" -plugin="$(CURDIR)/$(PLUGIN)" -specs="$(if $(OLDER),$(CURDIR)/$(SPECS))" -control-plane-images="$(CURDIR)/$(CONTROL_PLANE_IMAGES)" $(if $(PREVIOUS),-previous-bin="$(CURDIR)/$(OUT)/previous/bin")
# Each is a separate Go module: commands, tests and tools must not raise a
# version in the tree of a release.
MODULES := . staging/src/workload.openshift.io/partition node cmd/carry cmd/images cmd/kubectl-partition cmd/kubectl-partition/alerts/test cluster test/conformance test/classes test/e2e test/workloadpartitioning
include $(wildcard operators/*.mk scheduler/*.mk)

##@ A node

.PHONY: up
up: fit free build $(PLUGIN) ## Build Kubernetes and start a partitioned single-node cluster with a sample
	$(CLUSTER) up --bin $(BIN) --tools $(TOOLS) --tree $(TREE) --policy docs/user/examples/namespace-policy.yaml
	@echo
	@$(MAKE) --no-print-directory report
	@printf '\nmake report prints this again, and make down removes the cluster. To go on:\n\nexport %s %s\n' "$$($(CLUSTER) environment)" 'PATH=$$PATH:$(CURDIR)/$(BIN):$(CURDIR)/$(OUT)/bin'

# It is known before anything is built.
.PHONY: fit
fit:
	@why=$$(scripts/why-no-node.sh); [[ -z "$$why" ]] || { echo "this host cannot run a node: $$why" >&2; exit 1; }

.PHONY: free
free: packages $(CLUSTER)
	@$(CLUSTER) fit

.PHONY: report
report: $(PLUGIN) $(CLUSTER) ## Print the state of the cluster again, and what runs where
	@environment=$$($(CLUSTER) environment); eval "export $$environment"; $(PLUGIN) status --pools --kubeconfig "$$KUBECONFIG"
	@echo
	@$(PLUGIN) audit -o wide --notes=false

# WHAT is a component: kubelet, kube-apiserver, kube-scheduler, ...
WHAT ?= kubelet
.PHONY: restart
restart: $(CARRY) $(CLUSTER) ## Build a component, WHAT=kubelet, and restart it in the cluster that is up
	$(CARRY) build $(RELEASE) $(WHAT)
	$(CLUSTER) restart --bin $(BIN) $(WHAT)

.PHONY: logs
logs: $(CLUSTER) ## Follow the log of a component, WHAT=kubelet
	@$(CLUSTER) logs --follow $(WHAT)

.PHONY: down
down: $(CLUSTER) ## Stop the cluster and remove every trace of it
	$(CLUSTER) down

.PHONY: vm
vm: build vm-packages $(CLUSTER) ## Start a node in a virtual machine: systemd, cgroup v2, TOPOLOGY=sockets x cores x threads
	$(CLUSTER) vm up --bin $(BIN) --tools $(TOOLS) --tree $(TREE) --topology $(TOPOLOGY) --append="$(KERNEL_ARGS)" $(if $(PINNING),--pinning='$(PINNING)')

.PHONY: vm-down
vm-down: $(CLUSTER) ## End all virtual machines and remove every trace of them
	$(CLUSTER) vm down

.PHONY: vm-base
vm-base: vm-packages $(CLUSTER)
	$(CLUSTER) vm base

.PHONY: vm-packages
vm-packages:
	@scripts/install-packages.sh vm

##@ The series

.PHONY: tree
tree: $(CARRY) ## Materialise upstream's source with the patches applied
	$(CARRY) tree $(RELEASE)

.PHONY: export
export: $(CARRY) ## Write the tree's commits back to patches/
	$(CARRY) export $(RELEASE)

.PHONY: build
build: packages $(CARRY) tools ## Build Kubernetes with the series, and what else a node runs
	$(CARRY) build $(RELEASE)

.PHONY: reproducible
reproducible: build $(IMAGES) ## Build kubelet and kube-apiserver again elsewhere, make images of both, and compare the bytes
	scripts/reproducible.sh $(RELEASE)

.PHONY: plugin
plugin: packages $(PLUGIN) ## Build the kubectl plugin, _output/bin/kubectl-partition

# ELSEWHERE are the platforms of the plugin that cannot run a node.
ELSEWHERE := darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
.PHONY: plugin-elsewhere
plugin-elsewhere: packages ## Compile the kubectl plugin for macOS and Windows
	@for platform in $(ELSEWHERE); do echo "building kubectl-partition for $$platform" >&2; \
	  (cd cmd/kubectl-partition && export GOOS=$${platform%/*} GOARCH=$${platform#*/} && $(ALIKE) go build -o /dev/null .); done

# PLATFORMS are those of the images. KEY signs their checksums, and BASE replaces the Debian
# packages of all images that have some. MIRROR are archives of these to try before the host's. With FIPS=1 all programs
# are in FIPS mode.
PLATFORMS ?= linux/amd64 linux/arm64
FIPS      ?=
FORM      := $(if $(FIPS),fips-)
IMAGE_FLAGS = $(if $(BASE),--base="$(BASE)") $(if $(SOURCE),--source="$(SOURCE)") $(MIRROR:%=--mirror="%")
.PHONY: images
images: packages $(CARRY) $(IMAGES) ## Write images, packages, SBOMs and checksums into _output/RELEASE/images; FIPS=1 in FIPS mode, into fips-images
	scripts/images.sh $(if $(FIPS),--fips) $(RELEASE) "$(PLATFORMS)" $(if $(KEY),--key="$(KEY)") $(IMAGE_FLAGS)

.PHONY: push
push: $(IMAGES) ## Check the sums of these images, and push them to REGISTRY=registry.example.com/path
	@[[ -n "$(REGISTRY)" ]] || { echo "make push REGISTRY=registry.example.com/path: there is no REGISTRY" >&2; exit 1; }
	$(IMAGES) push $(OUT)/$(RELEASE)/$(FORM)images $(REGISTRY)

.PHONY: images-cosign-test
images-cosign-test: packages ## Have cosign's own code verify what a key attaches to images, in a registry of the test
	cd cmd/images/test/cosign && go mod tidy -diff && $(ALIKE) go build -buildvcs=false -o "$(CURDIR)/$(OUT)/bin/test-cosign" .
	cd cmd/images && $(ALIKE) TEST_ASSET_COSIGN="$(CURDIR)/$(OUT)/bin/test-cosign" go test -vet=off -count=1 -run='^TestSignaturesAreWhereRegistriesLookForThem' ./release

# MINOR is a minor version. What make images takes, this takes too.
.PHONY: update
update: packages $(CARRY) $(IMAGES) ## Bring MINOR=v1.36 to upstream's newest patch release, commit that, and make images of it
	scripts/update.sh "$(MINOR)" "$(PLATFORMS)" $(if $(KEY),--key="$(KEY)") $(IMAGE_FLAGS)

# VERSION is the version of this project, RELEASES are the releases that it is for, and URL is where its files will be.
.PHONY: release
release: packages $(CARRY) $(IMAGES) ## Write a version of this project, VERSION=v0.1.0, into _output/release
	PLUGIN_PLATFORMS="$(ELSEWHERE)" scripts/release.sh "$(VERSION)" "$(RELEASES)" $(lastword $(KNOWN)) $(OLDEST) "$(PLATFORMS)" "$(KEY)" "$(URL)" $(IMAGE_FLAGS)

.PHONY: tools
tools: packages ## Build etcd, containerd, runc and the CNI plugins
	@echo "building etcd, containerd, runc and the CNI plugins" >&2
	@cd build/tools && CGO_ENABLED=1 GOBIN="$(CURDIR)/$(TOOLS)" go install -v -tags=seccomp tool 2>&1 | \
	  awk '/[ :]/ {print > "/dev/stderr"; next} ++n % 100 == 0 {print n " packages compiled, now " $$0 > "/dev/stderr"}'
	@ln -sf server $(TOOLS)/etcd

# The stages say how kwok reports nodes and pods: its own defaults.
STAGES := node/fast/node-initialize node/heartbeat-with-lease/node-heartbeat-with-lease pod/fast/pod-ready pod/fast/pod-complete pod/fast/pod-delete
.PHONY: kwok
kwok: packages ## Build kwok, which plays the kubelets of many nodes in tests
	@echo "building kwok" >&2
	@cd build/kwok && GOBIN="$(CURDIR)/$(TOOLS)" go install tool
	@cd "$$(cd build/kwok && go list -m -f '{{.Dir}}' sigs.k8s.io/kwok)/kustomize/stage" && \
	  for stage in $(STAGES); do echo ---; cat $$stage.yaml; done >"$(CURDIR)/$(TOOLS)/kwok-stages.yaml"

##@ Tests

.PHONY: test
test: ## Run the tests that fit into 45 minutes, as CI does: unit, lint, series, end-to-end
	scripts/test.sh $@ $(RELEASE) $(OLDEST)

.PHONY: test-all
test-all: ## Run all tests: also upstream's own on every release, older binaries and virtual machines
	scripts/test.sh $@ $(RELEASE) $(OLDEST)

.PHONY: check
check: $(CARRY) ## Check a change to Go code before a commit: format, vet, unit tests, types in the tree
	scripts/check.sh $(RELEASE) $(MODULES)

# LONG_TO_COMPILE are modules that import Prometheus' own code, upstream's test framework or its scheduler.
LONG_TO_COMPILE += cmd/kubectl-partition/alerts/test test/classes test/workloadpartitioning
CHECKED = $(if $(SHORT),$(filter-out $(LONG_TO_COMPILE),$(MODULES)),$(MODULES))
# With the race detector, what the plugin and Prometheus' own code import would take ten minutes
# to compile. What the companions import takes two. Nothing in node or operators/api runs at the same time.
RACE = $(filter-out test/% operators/test/% node scheduler operators/api cmd/kubectl-partition% $(if $(SHORT),operators),$(MODULES))
# Lint vets all modules, so unit tests need not: vet looks at all that they import, too. FRESH=1 runs them even if go
# remembers that they pass.
UNIT = go test -vet=off $(SHORT)$(if $(FRESH), -count=1)
.PHONY: unit
unit: ## Run the unit tests, most of them with the race detector
	@for module in $(RACE); do echo "unit tests of $$module" >&2; (cd $$module && $(UNIT) -race ./...); done
	@echo "unit tests of test/conformance/specs and test/e2e/internal" >&2; (cd test/conformance && $(UNIT) -race ./specs/...); cd test/e2e && $(UNIT) -race ./internal/{noise,soak}
	@for module in $(filter node cmd/kubectl-partition% test/conformance,$(CHECKED)); do echo "unit tests of $$module" >&2; (cd $$module && $(ALIKE) $(UNIT) ./...); done

# FUZZTIME is that of each target.
FUZZTIME ?= 1m
.PHONY: fuzz
fuzz: ## Run each fuzz target for a minute
	@git grep --untracked --extended-regexp --only-matching '^func Fuzz[[:alnum:]]+' -- '*_test.go' | sed -E 's|/[^/]*:func | |' | while read -r dir target; do \
	  echo "$$target of $$dir" >&2; (cd $$dir && go test -run=NONE -fuzz="^$$target$$" -fuzztime=$(FUZZTIME) . </dev/null); \
	done

.PHONY: lint
lint: $(CARRY) ## Check formatting, go.mod files, vet, staticcheck and the patches
	scripts/lint.sh $(CHECKED)
	$(CARRY) lint $(RELEASE)
	$(CARRY) export --check $(RELEASE)

.PHONY: round-trip
round-trip: $(CARRY) ## Check that tree and export are inverse
	$(CARRY) tree $(RELEASE)
	$(CARRY) export --check $(RELEASE)

.PHONY: lint-series
lint-series: $(CARRY) ## Apply the series to every release, and lint, compare and type-check it there
	@for release in $(RELEASES); do $(CARRY) lint $$release; $(CARRY) export --check $$release; done
	$(CARRY) check

# VERIFY are the releases; empty means all.
VERIFY ?=
.PHONY: verify
verify: $(CARRY) ## Check the series against every release: apply, lint, compile, upstream's tests, ours
	$(CARRY) verify $(VERIFY)$(if $(FRESH), --force)

# PREVIEW is the release; empty means the newest pre-release that can be downloaded.
PREVIEW ?=
.PHONY: preview
preview: $(CARRY) ## See what breaks in upstream's next release: verify the series on a pre-release
	$(CARRY) preview $(PREVIEW)

.PHONY: rebase-test
rebase-test: ## Prove carry rebase with real releases of upstream
	cd cmd/carry && $(ALIKE) go test -count=1 -timeout=30m -run='^TestRebaseOnUpstream' ./internal/rebase -args -upstream

.PHONY: export-tree-test
export-tree-test: ## Export the newest release as a repository, and run upstream's checks in it
	@scripts/install-packages.sh export-tree
	cd cmd/carry && go test -count=1 -timeout=120m -v -run='^TestExportOnUpstream' ./internal/exporttree -args -upstream

# CRIO is the program of CRI-O, in place of containerd.
CRIO ?=
.PHONY: local-up
local-up: build $(if $(CRIO),$(PLUGIN)) ## Run upstream's hack/local-up-cluster.sh with a pinning file, and see where pods run; CRIO=/usr/bin/crio with that runtime
	@scripts/install-packages.sh local-up
	$(if $(CRIO),@scripts/install-packages.sh crio)
	cd test/e2e && $(ALIKE) go test -count=1 -timeout=20m -v ./localup -args -bin="$(CURDIR)/$(BIN)" -tools="$(CURDIR)/$(TOOLS)" -tree="$(CURDIR)/$(TREE)" $(if $(CRIO),-crio="$(CRIO)" -plugin="$(CURDIR)/$(PLUGIN)")

# NEEDS are what some of the end-to-end tests need, and say so in their first statement (test/e2e/needs_test.go). Without
# OLDER there are no specs either: they take minutes to compile.
NEEDS := unpatched-binaries older-binaries previous-binaries kwok control-plane-images plugin specs
.PHONY: e2e
e2e: build $(GOTESTSUM) $(CARRY) $(if $(E2E_RUN),need-selected,$(addprefix need-,$(NEEDS))) ## Run the end-to-end tests against a real node on this host; E2E_RUN=TestNoLeak runs some, and builds what they need
	cd test/e2e && $(GOTEST) $(SHORT) -count=1 -timeout=40m -run='$(E2E_RUN)' . -args $(E2E_ARGS) $(if $(SHORT),-upstream-bin=)

.PHONY: need-selected $(NEEDS:%=need-%)
# As make is called by this name, --dry-run does not run it.
need-selected: build
	@listed="$$(cd test/e2e && $(ALIKE) go test -v -vet=off $(SHORT) -count=1 -run='$(E2E_RUN)' . -args -needs)"; \
	  needs="$$(grep ^need- <<<"$$listed" || true)"; \
	  [[ -z "$$needs" ]] || make --no-print-directory $$needs
need-unpatched-binaries: $(CARRY)
	@if [[ -z "$(SHORT)" ]]; then $(CARRY) build --upstream $(RELEASE) kubelet kube-apiserver; fi
need-older-binaries: $(CARRY)
	@for release in $(OLDER); do $(CARRY) build $$release kubelet; done
	@if [[ -n "$(OLDER)" ]]; then $(CARRY) build $(lastword $(OLDER)) kube-apiserver; fi
need-previous-binaries: $(CARRY)
	@if [[ -z "$(SHORT)" && -n "$(PREVIOUS)" ]]; then scripts/previous.sh kubernetes "$(PREVIOUS)" $(RELEASE); fi
need-kwok: $(if $(SHORT),,kwok)
need-control-plane-images: $(if $(SHORT),,control-plane-images)
need-plugin: $(PLUGIN)
need-specs: $(if $(OLDER),$(SPECS))

# To carry a tree has no changes if only go.work.sum differs, and go build would call the binaries modified.
.PHONY: control-plane-images
control-plane-images: build $(IMAGES)
	@settings="$$(scripts/settings.sh | paste -sd ' ')"; if [[ -n "$$(scripts/tree-changes.sh $(RELEASE))$$settings" ]]; then \
	  echo "the tree has uncommitted changes, or a variable changes what is compiled ($$settings), so there are no images, and no test of them" >&2; rm -rf $(CONTROL_PLANE_IMAGES); \
	else \
	  git -C $(TREE) diff --quiet HEAD -- go.work.sum || { git -C $(TREE) checkout --quiet HEAD -- go.work.sum; $(CARRY) build $(RELEASE) kube-apiserver kube-controller-manager kube-scheduler; }; \
	  $(IMAGES) build --only=kube-apiserver,kube-controller-manager,kube-scheduler --bin="linux/$$(go env GOHOSTARCH)=$(BIN)" \
	    --commit="$$(git rev-parse HEAD)" --date="$$(git log -1 --no-show-signature --format=%cI)" $(CONTROL_PLANE_IMAGES); \
	fi

.PHONY: e2e-core
e2e-core: build $(GOTESTSUM) ## Run the most telling end-to-end tests, without unpatched and older binaries
	cd test/e2e && $(GOTEST) -count=1 -timeout=30m -run='$(E2E_RUN)' . -args $(E2E_ARGS) -suite=core -older-bin= -upstream-bin= -plugin= -specs=

# The binaries of this release that report data races have their own directory, with links to the rest of bin.
RACE_BIN := $(OUT)/$(RELEASE)/race-bin
.PHONY: e2e-race
e2e-race: build $(GOTESTSUM) ## Run those tests with a kubelet and a kube-apiserver that report data races
	$(CARRY) build --race $(RELEASE) kubelet kube-apiserver
	@cd $(RACE_BIN) && ln -sf ../bin/{kube-controller-manager,kube-scheduler,kube-proxy,kubectl} .
	cd test/e2e && $(GOTEST) -count=1 -timeout=60m -run='$(E2E_RUN)' . -args $(E2E_ARGS) -bin="$(CURDIR)/$(RACE_BIN)" -suite=core -older-bin= -upstream-bin= -plugin= -specs=

# The binaries of this release in FIPS mode have their own directory, with links to the rest of bin.
FIPS_BIN := $(OUT)/$(RELEASE)/fips-bin
.PHONY: e2e-fips
e2e-fips: build $(GOTESTSUM) ## Run those tests with a kubelet and a kube-apiserver in FIPS mode
	$(CARRY) build --fips $(RELEASE) kubelet kube-apiserver
	@cd $(FIPS_BIN) && ln -sf ../bin/{kube-controller-manager,kube-scheduler,kube-proxy,kubectl} .
	cd test/e2e && $(GOTEST) -count=1 -timeout=30m -run='$(E2E_RUN)' . -args $(E2E_ARGS) -bin="$(CURDIR)/$(FIPS_BIN)" -fips -suite=core -older-bin= -upstream-bin= -plugin= -specs=

.PHONY: specs
specs: packages $(SPECS) ## Run the specs of any cluster on the one of KUBECONFIG; they skip what it lacks
	$(SPECS) -kubeconfig="$(KUBECONFIG)" $(SPECS_ARGS)

.PHONY: e2e-plugin
e2e-plugin: build $(GOTESTSUM) kwok ## Have kubectl complete the plugin, and run kubectl partition status and gather against control planes, one of them with 5,000 simulated nodes and 100,000 pods
	cd cmd/kubectl-partition && $(ALIKE) TEST_ASSET_KUBECTL="$(CURDIR)/$(BIN)/kubectl" go test -vet=off -count=1 -run='^TestKubectlCompletesThePlugin' ./internal/cli
	cd cmd/kubectl-partition && $(GOTEST) -count=1 -timeout=1h . -args -bin="$(CURDIR)/$(BIN)" -tools="$(CURDIR)/$(TOOLS)"

# FOCUS is an expression of the names of upstream's specs, and SKIP one of the names of those that do not run; write
# a $ twice. Empty means all, and none. PARALLEL is how many run at a time. A run goes on where an earlier one
# stopped; RETRY=1 also runs again what did not pass, and FRESH=1 starts over.
FOCUS    ?=
SKIP     ?=
PARALLEL ?= 16
RETRY    ?=
FRESH    ?=
# Names have quotes, which a shell must not see.
export FOCUS SKIP
CONFORMANCE := $(OUT)/bin/conformance
CONFORMANCE_ARGS = --bin="$(CURDIR)/$(BIN)" --tools="$(CURDIR)/$(TOOLS)" --tree="$(CURDIR)/$(TREE)" --cluster="$(CURDIR)/$(CLUSTER)" --debs="$(CURDIR)/$(OUT)/debs" --out="$(CURDIR)/$(OUT)/$(RELEASE)/$(1)" \
  --focus="$$FOCUS" --skip="$$SKIP" --parallel=$(PARALLEL) $(if $(RETRY),--retry) $(if $(FRESH),--fresh)
.PHONY: conformance
conformance: conformance-binaries ## Run upstream's conformance specs on a partitioned cluster; FOCUS=, SKIP=, PARALLEL=, RETRY=1, FRESH=1
	$(CONFORMANCE) run $(call CONFORMANCE_ARGS,conformance)

.PHONY: conformance-compare
conformance-compare: conformance-binaries ## Run them there and on the same cluster with unpatched binaries, and compare
	$(CARRY) build --upstream $(RELEASE) kubelet kube-apiserver
	$(CONFORMANCE) compare $(call CONFORMANCE_ARGS,conformance) --upstream-bin="$(CURDIR)/$(OUT)/$(RELEASE)/upstream-bin"

.PHONY: node-compare
node-compare: build vm-packages $(CONFORMANCE) $(CLUSTER) ## Run upstream's tests of CPU, memory and topology manager and of resizes in virtual machines, and compare
	@scripts/install-packages.sh images
	$(CARRY) build --upstream $(RELEASE) kubelet e2e_node.test
	$(CONFORMANCE) node $(call CONFORMANCE_ARGS,node-compare) --upstream-bin="$(CURDIR)/$(OUT)/$(RELEASE)/upstream-bin"

.PHONY: conformance-binaries
conformance-binaries: build coredns $(CONFORMANCE) $(CLUSTER)
	@scripts/install-packages.sh images
	$(CARRY) build $(RELEASE) e2e.test agnhost nonewprivs sample-apiserver

.PHONY: coredns
coredns:
	@echo "building CoreDNS" >&2
	@cd build/coredns && $(ALIKE) go build -buildvcs=false -o "$(CURDIR)/$(TOOLS)/coredns" .

VM_ARGS = -suite-name=$(VM_SUITE) -suite-run='$(E2E_SUITE)' -kernel-args='$(KERNEL_ARGS)' -bin="$(CURDIR)/$(BIN)" -tools="$(CURDIR)/$(TOOLS)" \
	  -tree="$(CURDIR)/$(TREE)" -cluster="$(CURDIR)/$(CLUSTER)" -suite="$(CURDIR)/$(OUT)/e2e.test" -plugin="$(CURDIR)/$(PLUGIN)" $(if $(OLDER),-older-bin="$(CURDIR)/$(OUT)/$(lastword $(OLDER))/bin" -upstream-bin="$(CURDIR)/$(OUT)/$(RELEASE)/upstream-bin")
ifeq ($(OPERATOR),)
.PHONY: e2e-vm
e2e-vm: build $(GOTESTSUM) vm-packages $(CLUSTER) $(PLUGIN) ## Run the end-to-end tests in virtual machines: systemd, cgroup v2, many CPUs, reboots
	@for release in $(lastword $(OLDER)); do $(CARRY) build $$release kubelet; done
	@if [[ -n "$(OLDER)" ]]; then $(CARRY) build --upstream $(RELEASE) kubelet; fi
	cd test/e2e && $(ALIKE) go test -c -o "$(CURDIR)/$(OUT)/e2e.test" .
	cd test/e2e && $(GOTEST) -count=1 -timeout=150m -run='$(E2E_RUN)' ./vm -args $(VM_ARGS)
else
.PHONY: e2e-vm
e2e-vm: companion operators-e2e-vm
endif

.PHONY: e2e-vm-core
e2e-vm-core: E2E_RUN := ^TestSuite$$
e2e-vm-core: VM_SUITE := vm-core
# None of them needs an older kubelet or an unpatched one.
e2e-vm-core: OLDER :=
e2e-vm-core: e2e-vm ## Run the most telling of them; make test does, if there is time

# KUBEADM is what users of kubeadm get of a release: images and packages. The node's etcd needs the host's
# libraries, which an image has not.
KUBEADM = $(OUT)/$(1)/kubeadm
.PHONY: e2e-kubeadm
e2e-kubeadm: older-release build $(GOTESTSUM) $(IMAGES) coredns vm-packages $(CLUSTER) $(PLUGIN) ## Have kubeadm make a cluster of two virtual machines with these images and packages, and upgrade it by a minor release
	@scripts/install-packages.sh images
	@for release in $(lastword $(OLDER)) $(RELEASE); do \
	  [[ ! -e $(OUT)/$$release/kubernetes/.git ]] || git -C $(OUT)/$$release/kubernetes checkout --quiet HEAD -- go.work.sum; \
	  $(CARRY) build $$release kubelet kube-apiserver kube-controller-manager kube-scheduler kube-proxy kube-log-runner kubectl kubeadm; \
	  $(IMAGES) build $(IMAGE_FLAGS) --only=kube-apiserver,kube-controller-manager,kube-scheduler,kube-proxy,kubelet,kubectl --bin="linux/$$(go env GOHOSTARCH)=$(OUT)/$$release/bin" \
	    --commit="$$(git rev-parse HEAD)" --date="$$(git log -1 --no-show-signature --format=%cI)" $(call KUBEADM,$$release); \
	done
	@cd build/tools && $(ALIKE) go build -buildvcs=false -o "$(CURDIR)/$(OUT)/kubeadm/etcd" go.etcd.io/etcd/server/v3
	cd test/e2e && $(ALIKE) go test -c -o "$(CURDIR)/$(OUT)/e2e.test" .
	cd test/e2e && $(GOTEST) -count=1 -timeout=150m -run='^TestKubeadmMakesAndUpgradesAPartitionedCluster$$' ./vm -args $(VM_ARGS) -upstream-bin= -static-etcd="$(CURDIR)/$(OUT)/kubeadm/etcd" \
	  -kubeadm-images="$(CURDIR)/$(call KUBEADM,$(RELEASE))" $(if $(OLDER),-older-kubeadm-images="$(CURDIR)/$(call KUBEADM,$(lastword $(OLDER)))")

.PHONY: older-release
older-release:
	@[[ -n "$(OLDER)" ]] || { echo "an upgrade to $(RELEASE) needs an older release in build/releases, and there is none" >&2; exit 1; }

.PHONY: bench
bench: build $(CARRY) ## Measure the packages, and start and creation of pods against unpatched binaries
	go test -run=NONE -bench=. ./pkg/... ./openshift-kube-apiserver/...
	cd staging/src/workload.openshift.io/partition && go test -run=NONE -bench=. ./...
	cd cmd/kubectl-partition && go test -run=NONE -bench=. ./lint
	$(CARRY) build --upstream $(RELEASE) kubelet kube-apiserver
	cd test/e2e && $(ALIKE) go test -count=1 -timeout=30m -v -run=NONE -bench=. -skip='^Benchmark(Noise|ManyNodes|ProfileCreate|Soak)$$' -benchtime=1x . -args $(E2E_ARGS)

# ROUNDS is how often each kind of node takes its turn of about two minutes, and PART an expression of the parts: pairs
# and kinds. Empty means both.
ROUNDS ?= 5
.PHONY: bench-noise
bench-noise: build $(CARRY) ## Measure how an application with an exclusive CPU is disturbed, by this kubelet and by an unpatched one, and plot it; PART=pairs compares with the idle node
	$(CARRY) build --upstream $(RELEASE) kubelet
	cd test/e2e && $(ALIKE) go test -count=1 -timeout=120m -v -run=NONE -bench='^BenchmarkNoise$$$(if $(PART),/^($(PART))$$)' -benchtime=$(ROUNDS)x . -args $(E2E_ARGS) -noise-plot="$(CURDIR)/$(OUT)/noise.svg"

# NODES and PODS are how many are simulated, and PART is an expression of the parts: latch, create, schedule and
# change. Empty means all.
NODES ?= 5000
PODS  ?= 20000
PART  ?=
.PHONY: bench-nodes
bench-nodes: build kwok $(CARRY) $(PLUGIN) ## Measure a control plane with NODES=5000 simulated nodes and PODS=20000: the latch, creation, scheduling, a change of pools; PART=latch runs one of them
	$(CARRY) build --upstream $(RELEASE) kube-apiserver
	cd test/e2e && $(ALIKE) go test -count=1 -timeout=3h -v -run=NONE -bench='^BenchmarkManyNodes$$$(if $(PART),/^($(PART))$$)' -benchtime=1x . -args $(E2E_ARGS) -nodes=$(NODES) -pods=$(PODS)

.PHONY: profile-create
profile-create: build $(CARRY) ## Profile the creation of pods in a patched and in an unpatched kube-apiserver, and compare by functions
	$(CARRY) build --upstream $(RELEASE) kube-apiserver
	@mkdir -p $(OUT)/profiles
	cd test/e2e && $(ALIKE) go test -count=1 -timeout=60m -v -run=NONE -bench='^BenchmarkProfileCreate$$' -benchtime=1x . -args $(E2E_ARGS) -profiles="$(CURDIR)/$(OUT)/profiles"

# SOAK is a number of hours, SEED that of random numbers, and ROUND the only round to run. SOAK_STATE
# is a directory: what all parts have done adds up there.
SOAK       ?= 1
SEED       ?=
ROUND      ?=
SOAK_STATE ?= $(OUT)/soak
# The nodes' profiles of their heaps have an object of each 4 KiB, and not of each 512.
.PHONY: soak
soak: build ## Run pods, restarts, and changes of pools on a node for SOAK=1 hours, and look for leaks, drift and growth
	cd test/e2e && GODEBUG=memprofilerate=4096 $(ALIKE) go test -count=1 -timeout=$$(awk 'BEGIN {print int(60 * $(SOAK)) + 30}')m -v -run=NONE -bench='^BenchmarkSoak$$' -benchtime=1x . -args $(E2E_ARGS) \
	  -soak=$(SOAK) $(if $(SEED),-soak-seed=$(SEED)) $(if $(ROUND),-soak-round=$(ROUND)) -soak-state="$(abspath $(SOAK_STATE))"

##@ Other

.PHONY: packages
packages: ## Install the Debian packages and the Go that are missing
	@scripts/install-packages.sh

.PHONY: clean
clean: down ## Remove all that was built, except the trees, which may have your work
	rm -rf $(OUT)/bin $(OUT)/bin-* $(OUT)/chart $(OUT)/*/scheduler-bin* $(OUT)/*/scheduler.* $(OUT)/fips-bin-* $(OUT)/operators $(OUT)/previous $(OUT)/release $(OUT)/kubeadm $(TOOLS) $(OUT)/*.test $(OUT)/*/bin $(OUT)/*/race-bin $(OUT)/*/fips-* $(OUT)/*/bin-* $(OUT)/*/images $(OUT)/*/images.new-* $(OUT)/*/control-plane-images $(OUT)/*/conformance $(OUT)/*/node-compare $(OUT)/*/kubeadm $(OUT)/*/upstream $(OUT)/*/upstream-bin
	git worktree prune

.PHONY: help
help: ## Show this
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# go build knows what is up to date.
.PHONY: $(CARRY) $(CLUSTER) $(CONFORMANCE) $(GOTESTSUM) $(IMAGES) $(PLUGIN) $(SPECS)
$(GOTESTSUM):
	@GOBIN="$(CURDIR)/$(OUT)/bin" $(ALIKE) go install -C build/gotestsum tool
$(CARRY):
	@cd cmd/carry && $(ALIKE) go build -o "$(CURDIR)/$@" .
$(CONFORMANCE):
	@cd test/conformance && $(ALIKE) go build -o "$(CURDIR)/$@" .
$(IMAGES):
	@cd cmd/images && $(ALIKE) go build -o "$(CURDIR)/$@" .
# Some of its dependencies are large, so the first time takes minutes.
$(PLUGIN):
	@[[ -e $@ ]] || echo "building kubectl-partition" >&2
	@cd cmd/kubectl-partition && $(ALIKE) go build -ldflags="$$(../../scripts/ldflags.sh)" -o "$(CURDIR)/$@" .
	@rm -f $(OUT)/bin/kubectl_complete-partition; $@ completion kubectl >$(OUT)/bin/kubectl_complete-partition; chmod +x $(OUT)/bin/kubectl_complete-partition
$(SPECS):
	@[[ -e $@ ]] || echo "building the specs of any cluster" >&2
	@cd test/workloadpartitioning && $(ALIKE) go test -c -o "$(CURDIR)/$@" .
# Without the commit it is the same file, and so is what VMs are made of.
$(CLUSTER):
	@cd cluster && $(ALIKE) go build -buildvcs=false -o "$(CURDIR)/$@" ./cmd
