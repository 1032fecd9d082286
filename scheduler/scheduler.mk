# The NUMA-aware scheduler. The root Makefile includes this.

MODULES += scheduler
# What it imports takes minutes to compile.
LONG_TO_COMPILE += scheduler

##@ The NUMA-aware scheduler

# Its module uses upstream's plugin, which go finds only when it is there.
.PHONY: scheduler-plugin
scheduler-plugin: $(CARRY)
	@$(CARRY) plugin
lint check unit fuzz: scheduler-plugin

# That of the newest release is among the programs of this project.
NEWEST := $(lastword $(KNOWN))
SCHEDULER := $(OUT)/$(if $(filter $(NEWEST),$(RELEASE)),bin,$(RELEASE)/scheduler-bin)/topo-aware-scheduler

# SCHEDULER_GO runs a command of go in the module, whose flags for a release are SCHEDULER_FLAGS.
SCHEDULER_GO = modfile=$$(scripts/scheduler-modfile.sh $(RELEASE)) && cd scheduler && $(ALIKE) go
SCHEDULER_FLAGS = -modfile="$$modfile" -tags=$(basename $(RELEASE))

.PHONY: scheduler
scheduler: packages scheduler-plugin ## Build topo-aware-scheduler, which places pods by NUMA nodes; RELEASE=v1.36.5 for another release
	@echo "building topo-aware-scheduler for $(RELEASE)" >&2
	@$(SCHEDULER_GO) build $(SCHEDULER_FLAGS) -buildvcs=false -ldflags='-s -w' -o "$(CURDIR)/$(SCHEDULER)" ./cmd/topo-aware-scheduler

.PHONY: scheduler-test
scheduler-test: build operators kwok $(PLUGIN) scheduler-unit ## Run its tests, with upstream's topology manager as the judge and against a kube-apiserver, and upstream's tests of the plugin, and then those of older releases
	cd scheduler && $(ALIKE) go test -vet=off -count=1 -timeout=60m -v ./simulation
	cd operators && $(ALIKE) $(CONTROL_PLANE) TEST_ASSET_SCHEDULER="$(CURDIR)/$(SCHEDULER)" TEST_ASSET_PLUGIN="$(CURDIR)/$(PLUGIN)" TEST_ASSET_KWOK="$(CURDIR)/$(TOOLS)/kwok" TEST_ASSET_PARTITION_NODE="$(CURDIR)/$(OUT)/bin/partition-node" go test -vet=off -count=1 -timeout=60m -v -bench=. -benchtime=1x ./numaresources/scheduled
	cd operators && $(ALIKE) $(CONTROL_PLANE) TEST_ASSET_SCHEDULER="$(CURDIR)/$(SCHEDULER)" go test -vet=off -count=1 -v -run='^Test(TheSchedulerDoesWithTheRightsOfItsManifests|ReportsOfManyNodes)$$' ./numaresources/controller -args -nodes=1000
	@for release in $(filter-out $(NEWEST),$(KNOWN)); do $(MAKE) --no-print-directory scheduler-older-test RELEASE=$$release; done

.PHONY: scheduler-unit
scheduler-unit: scheduler
	@$(SCHEDULER_GO) test $(SCHEDULER_FLAGS) -vet=off -count=1 sigs.k8s.io/scheduler-plugins/pkg/... ./ledger ./plugin

# Of an older release, the scheduler runs on a kube-apiserver of that release. Machines, kwok and measurements are of the newest alone.
.PHONY: scheduler-older-test
scheduler-older-test: scheduler-unit tools
	$(CARRY) build $(RELEASE) kube-apiserver kubectl
	cd operators && $(ALIKE) $(CONTROL_PLANE) TEST_ASSET_SCHEDULER="$(CURDIR)/$(SCHEDULER)" go test -vet=off -count=1 -v ./numaresources/scheduled
	cd operators && $(ALIKE) $(CONTROL_PLANE) TEST_ASSET_SCHEDULER="$(CURDIR)/$(SCHEDULER)" go test -vet=off -count=1 -v -run='^TestTheSchedulerDoesWithTheRightsOfItsManifests$$' ./numaresources/controller
