# The companions. The root Makefile includes this.

MODULES += operators operators/api operators/test/machines operators/test/clusterapi
# These two import the controllers of OpenShift's machines and of Cluster API.
LONG_TO_COMPILE += operators/test/machines operators/test/clusterapi
# OPERATOR is a companion. One that no user gets, such as that of the tests, has its programs and manifests with it.
OPERATOR  ?=
OWN       := $(wildcard operators/internal/$(OPERATOR)/deploy)
MANIFESTS := $(or $(OWN),operators/deploy/$(OPERATOR))
PROGRAMS  := $(OUT)/$(if $(OWN),operators/$(OPERATOR)/)bin
MADE      := $(OUT)/operators/$(if $(OWN),$(OPERATOR)/)images
CONTROLLER := $(PROGRAMS)/partition-controller
# REGISTRY is where nodes find images.
REGISTRY ?=
KUBECTL ?= $(BIN)/kubectl
# CONTROL_PLANE tells tests which binaries to start.
CONTROL_PLANE = TEST_ASSET_KUBE_APISERVER="$(CURDIR)/$(BIN)/kube-apiserver" TEST_ASSET_ETCD="$(CURDIR)/$(TOOLS)/etcd" TEST_ASSET_KUBECTL="$(CURDIR)/$(BIN)/kubectl" $(if $(SHORT),,TEST_ASSET_MACHINES="$(CURDIR)/$(OUT)/bin/test-machines" TEST_ASSET_CLUSTER_API="$(CURDIR)/$(OUT)/bin/test-clusterapi")

##@ Companions

.PHONY: operators
operators: packages ## Build the companions' programs, partition-controller, partition-agent and partition-node
	@echo "building the companions" >&2
	@cd operators && $(ALIKE) go build -buildvcs=false -ldflags='-s -w' -o "$(CURDIR)/$(PROGRAMS)/" ./$(if $(OWN),internal/$(OPERATOR)/)cmd/...

.PHONY: operators-images
operators-images: operators $(IMAGES) ## Make images of these programs, for this host's platform alone
	scripts/operators-images.sh $(PROGRAMS) $(if $(OWN),$(PROGRAMS)/topo-aware-scheduler,$(SCHEDULER)) $(MADE) $(if $(OWN),,partition-tuned)

.PHONY: generate
generate: packages ## Write the companions' CRDs, roles and deepcopy functions from their types and markers
	scripts/generate.sh

# WAITING is how many packages are tested at a time: most of their tests wait for controllers, or for TuneD.
WAITING ?= 4
.PHONY: operators-test
operators-test: build $(if $(SHORT),,operators-machines) ## Run the companions' tests, with a kube-apiserver and etcd for each package
	@scripts/install-packages.sh tuned
	cd operators && $(ALIKE) $(CONTROL_PLANE) go test -vet=off -count=1 -p $(WAITING) $(SHORT) ./...

# Controllers of machines of OpenShift and Cluster API, for tests. Their modules have dependencies of their own.
.PHONY: operators-machines
operators-machines:
	cd operators/test/machines && $(ALIKE) go build -buildvcs=false -o "$(CURDIR)/$(OUT)/bin/test-machines" .
	cd operators/test/clusterapi && $(ALIKE) go build -buildvcs=false -o "$(CURDIR)/$(OUT)/bin/test-clusterapi" .

# AS is a user to act as, if the command line names one: by default, make has an assembler there. PORT is where the webhook listens.
AS   :=
PORT ?= 8443
.PHONY: classes-local
classes-local: operators $(KUBECTL) ## Run the webhook of workload classes on this host, with the current cluster of kubectl, and post pods to it; AS=system:admin
	AS="$(AS)" PORT="$(PORT)" scripts/classes-local.sh $(CONTROLLER) $(KUBECTL)

# TRACE_SEED is that of the traces.
TRACE_SEED ?= 1
.PHONY: bench-classes
bench-classes: ## Measure what workload classes save: a wave and a day on a virtual clock, with charts and tables in _output/classes
	@mkdir -p $(OUT)/classes
	cd test/classes && $(ALIKE) go test -count=1 -timeout=60m -v . -args -out="$(CURDIR)/$(OUT)/classes" -seed=$(TRACE_SEED)

# Karpenter, with its own provider for kwok.
.PHONY: karpenter
karpenter:
	cd build/karpenter && $(ALIKE) go build -buildvcs=false -o "$(CURDIR)/$(OUT)/bin/test-karpenter" sigs.k8s.io/karpenter/kwok

.PHONY: bench-classes-wave
bench-classes-wave: build operators-machines karpenter ## Play a wave of two hours in twelve minutes on a control plane, to compare with that clock, and twice with Karpenter; PART=workload-classes plays one
	@mkdir -p $(OUT)/classes
	cd test/classes && $(ALIKE) go test -count=1 -run='^TestCompressed$$' . -args -out="$(CURDIR)/$(OUT)/classes" -seed=$(TRACE_SEED)
	cd operators && $(ALIKE) $(CONTROL_PLANE) TEST_ASSET_KARPENTER="$(CURDIR)/$(OUT)/bin/test-karpenter" go test -vet=off -count=1 -timeout=90m -v -run='^TestTheWaveOnAControlPlane$$$(if $(PART),/^($(PART))$$)' ./workloadclasses/controller -args -wave="$(CURDIR)/$(OUT)/classes/compressed.json"

# CLASSES_SEEDS is how many seeded runs there are in which calls of the API fail.
CLASSES_SEEDS ?= 1000
.PHONY: operators-classes
operators-classes: build operators-machines ## Give back CLASSES_SEEDS=1000 nodes of workload classes while calls of the API fail at random
	cd operators && $(ALIKE) $(CONTROL_PLANE) go test -vet=off -count=1 -timeout=4h -run='^TestCallsThatFailAtRandom$$' ./workloadclasses/controller -args -seeds=$(CLASSES_SEEDS)

# POOLS is how many NodePools there are.
POOLS ?= 100
.PHONY: bench-tuning
bench-tuning: build ## Measure nodepool, hostedconfig and tuning with POOLS=100 NodePools of ten nodes, at rest and for an edit of what they name; then leave a typo for eleven minutes, which must change nothing
	cd operators && $(ALIKE) $(CONTROL_PLANE) go test -vet=off -count=1 -timeout=60m -v -run='^TestPoolsOfTenNodes$$' ./cmd/partition-controller -args -pools=$(POOLS)
	cd operators && $(ALIKE) $(CONTROL_PLANE) go test -vet=off -count=1 -timeout=30m -v -run='^TestASysctlFromTheManagementClusterToAKernel$$' ./tuning/story -args -unchanged=11m

.PHONY: chart
chart: packages ## Write the companions' Helm chart into _output/chart; make images packs it
	cd operators/chart && $(ALIKE) go build -buildvcs=false -o "$(CURDIR)/$(OUT)/bin/chart" .
	$(OUT)/bin/chart operators $(OUT)/chart

# CHART_FROM is a revision of this project from whose chart it is upgraded: the first that has one, until a version has. Empty means
# that this checkout lacks it.
CHART_FROM ?= $(shell git rev-parse --verify --quiet ea4fb2b4^{commit})
.PHONY: operators-chart-test
operators-chart-test: build ## Check the chart: with Helm's own lint, against what kustomize renders, and on a kube-apiserver and etcd, upgraded from CHART_FROM
	$(if $(CHART_FROM),scripts/previous.sh chart "$(CHART_FROM)" $(RELEASE))
	cd operators/chart && go mod tidy -diff && $(ALIKE) $(CONTROL_PLANE) $(if $(CHART_FROM),TEST_ASSET_CHART="$(CURDIR)/$(OUT)/previous/companions/$(OUT)/chart") go test -vet=off -count=1 ./...

.PHONY: operators-browser
operators-browser: build $(GOTESTSUM) ## Go through the console of cpupolicy in a browser, with a kube-apiserver and etcd
	scripts/install-packages.sh browser
	@command -v chromium >/dev/null || { echo "there is no chromium" >&2; exit 1; }
	cd operators && $(CONTROL_PLANE) TEST_ASSET_CHROMIUM="$$(command -v chromium)" \
	  $(GOTEST) -count=1 -run='^TestTheConsoleInABrowser$$' ./cpupolicy/controller

.PHONY: operators-e2e
operators-e2e: build $(GOTESTSUM) operators-images ## Run the companions' end-to-end tests against a real node on this host
	cd operators && $(GOTEST) $(SHORT) -vet=off -count=1 -p=1 -timeout=10m ./e2e ./e2e/numaresources ./e2e/hosted -args -bin="$(CURDIR)/$(BIN)" -tools="$(CURDIR)/$(TOOLS)" -tree="$(CURDIR)/$(TREE)" -controller="$(CURDIR)/$(CONTROLLER)" -images="$(CURDIR)/$(OUT)/operators/images"

# UPGRADE_FROM is a revision of this project from which make operators-lifecycle upgrades.
UPGRADE_FROM ?= $(PREVIOUS)
.PHONY: operators-lifecycle
operators-lifecycle: build $(GOTESTSUM) operators-images ## Install the companions of UPGRADE_FROM on a node of this host, upgrade them in the middle of their work, and remove them, with make
	scripts/previous.sh operators-images "$(UPGRADE_FROM)" $(RELEASE)
	cd operators && $(GOTEST) -vet=off -count=1 -timeout=40m -run='^TestAnAdministratorInstallsUpgradesAndRemovesEachCompanion$$/$(E2E_RUN)' ./e2e -args -bin="$(CURDIR)/$(BIN)" -tools="$(CURDIR)/$(TOOLS)" -tree="$(CURDIR)/$(TREE)" -controller="$(CURDIR)/$(CONTROLLER)" -images="$(CURDIR)/$(OUT)/operators/images" -checkout="$(CURDIR)" -previous="$(CURDIR)/$(OUT)/previous/companions"

# What has passed with the same programs and manifests is not run again, except with FRESH=1; it is noted in
# _output/operators/passed.
.PHONY: operators-e2e-vm
operators-e2e-vm: build $(GOTESTSUM) vm-packages $(if $(filter-out numaresources,$(OPERATOR)),,scheduler) operators-images $(CLUSTER) $(PLUGIN) ## Run the companions' end-to-end tests in virtual machines, with systemd; make e2e-vm OPERATOR=cpupolicy runs those of one
	scripts/install-packages.sh browser
	cd operators && $(GOTEST) -count=1 -timeout=90m -run='$(E2E_RUN)' ./e2e/vm -args -bin="$(CURDIR)/$(BIN)" -tools="$(CURDIR)/$(TOOLS)" -tree="$(CURDIR)/$(TREE)" -cluster="$(CURDIR)/$(CLUSTER)" \
	  -agent="$(CURDIR)/$(OUT)/bin/partition-agent" -controller="$(CURDIR)/$(CONTROLLER)" -plugin="$(CURDIR)/$(PLUGIN)" -chromium="$$(command -v chromium)" -images="$(CURDIR)/$(OUT)/operators/images" -companion="$(OPERATOR)" -passed="$(if $(FRESH),,$(CURDIR)/$(OUT)/operators/passed)"

# The companions of the management side run as processes on this host, since that cluster has no node.
.PHONY: up-hosted
up-hosted: fit free build operators-images ## Start a node's cluster, and beside it a management cluster that has NodePools and the companions for it
	$(CLUSTER) up --management --bin $(BIN) --tools $(TOOLS) --tree $(TREE) --policy docs/user/examples/namespace-policy.yaml
	scripts/up-hosted.sh $(CLUSTER) $(CURDIR)/$(CONTROLLER) $(BIN)/kubectl
	@$(MAKE) --no-print-directory report-hosted
	@printf '\nmake report-hosted prints this again, and make down removes both clusters. To go on, on the management cluster or on the hosted one:\n\nexport %s\nexport %s\n' "$$($(CLUSTER) environment --management)" "$$($(CLUSTER) environment)"

.PHONY: report-hosted
report-hosted: $(CLUSTER) ## Print what of the NodePools' configuration arrived where, on the clusters of make up-hosted
	@scripts/report-hosted.sh $(CLUSTER) $(BIN)/kubectl

# TuneD's changes are this host's.
.PHONY: undo-tuning
undo-tuning: $(CLUSTER)
	@scripts/undo-tuning.sh $(CLUSTER) $(BIN)/kubectl
down: undo-tuning

# KUBEVIRT_GATE=1 also switches on the feature gate CPUManager of KubeVirt.
KUBEVIRT_GATE ?=
.PHONY: install
install: companion $(if $(REGISTRY),,operators-images) $(KUBECTL) ## Install a companion, OPERATOR=cpupolicy, on the current cluster of kubectl
	scripts/operators-manifests.sh "$(OPERATOR)" $(MANIFESTS) $(if $(OWN),$(MADE),$(if $(REGISTRY),$(OUT)/$(RELEASE)/$(FORM)images,$(MADE))) "$(KUBECTL)" "$(REGISTRY)"
	$(KUBECTL) apply --server-side --force-conflicts -k $(OUT)/operators/deploy/$(OPERATOR)
	@nodes=$$($(KUBECTL) get nodes --output=name | wc -l); \
	control_planes=$$($(KUBECTL) get nodes --selector=node-role.kubernetes.io/control-plane --output=name | wc -l); \
	if [[ $$nodes == 1 || $$control_planes == 1 ]]; then \
	  $(KUBECTL) scale --namespace=partition-$(OPERATOR) deployment --all --replicas=1; \
	fi
	$(KUBECTL) rollout status --namespace=partition-$(OPERATOR) deployment/partition-controller --timeout=2m
	$(KUBECTL) rollout status --namespace=partition-$(OPERATOR) deployment --timeout=4m
	$(if $(filter-out 0,$(KUBEVIRT_GATE)),scripts/operators-gate.sh $(KUBECTL))

# Nothing of this needs a controller that runs. HOSTED_KUBECONFIG is for a companion that also works in a hosted cluster: there
# the policies go first, then what the companion made, and its rights once no pod of it is left. kube-apiserver forgets a policy a
# moment after it is deleted.
HOSTED_KUBECONFIG ?=
.PHONY: uninstall
uninstall: companion hosted-kubeconfig operators $(KUBECTL) ## Remove a companion, OPERATOR=cpupolicy, and what it has left on nodes
	@mkdir -p $(OUT)/operators/remove/$(OPERATOR)
	@foreign=$$(scripts/operators-foreign.sh $(MANIFESTS) "$(KUBECTL)"); \
	  printf 'resources: [../../../../$(MANIFESTS)]\n%s\n' "$${foreign:+patches:$$'\n'$$foreign}" >$(OUT)/operators/remove/$(OPERATOR)/kustomization.yaml
	$(KUBECTL) delete --ignore-not-found -k $(OUT)/operators/remove/$(OPERATOR)
	@if $(HOSTED); then \
	  scripts/operators-uninstall-hosted.sh "$(OPERATOR)" $(MANIFESTS) "$(KUBECTL)" "$(CONTROLLER)" "$(HOSTED_KUBECONFIG)"; \
	else \
	  $(CONTROLLER) clean --controller=$(OPERATOR); \
	fi

# Variants of a companion, such as tuning-ordinary, are installed and removed otherwise.
.PHONY: companion
companion:
	@grep --quiet --no-messages --line-regexp "controller: $(OPERATOR)" $(MANIFESTS)/config.yaml || { echo "make OPERATOR=cpupolicy ...: there is no companion \"$(OPERATOR)\"" >&2; exit 1; }

# HOSTED tells whether the companion also works in a hosted cluster.
HOSTED = grep --quiet '^hostedConnection:' $(MANIFESTS)/config.yaml
.PHONY: hosted-kubeconfig
hosted-kubeconfig: companion
	@! $(HOSTED) || [[ -r "$(HOSTED_KUBECONFIG)" ]] || { echo "make uninstall: $(OPERATOR) also works in a hosted cluster: make uninstall OPERATOR=$(OPERATOR) HOSTED_KUBECONFIG=..." >&2; exit 1; }

$(BIN)/kubectl:
	@$(MAKE) --no-print-directory build
