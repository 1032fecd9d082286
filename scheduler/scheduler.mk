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

# That of the newest release is among the programs of this project, and that of another beside the release's.
NEWEST := $(lastword $(KNOWN))
SCHEDULER := $(if $(filter $(NEWEST),$(RELEASE)),$(OUT)/bin,$(BIN))/topo-aware-scheduler

.PHONY: scheduler
scheduler: packages scheduler-plugin ## Build topo-aware-scheduler, which places pods by NUMA nodes; RELEASE=v1.36.5 for another release
	@echo "building topo-aware-scheduler for $(RELEASE)" >&2
	@modfile=$$(scripts/scheduler-modfile.sh $(RELEASE)) && cd scheduler && $(ALIKE) go build -modfile="$$modfile" -buildvcs=false -ldflags='-s -w' -o "$(CURDIR)/$(SCHEDULER)" ./cmd/topo-aware-scheduler

.PHONY: scheduler-test
scheduler-test: build operators kwok scheduler $(PLUGIN) ## Run its tests, with upstream's topology manager as the judge and against a kube-apiserver, and upstream's tests of the plugin; and build it for older releases
	cd scheduler && $(ALIKE) go test -vet=off -count=1 sigs.k8s.io/scheduler-plugins/pkg/...
	cd scheduler && $(ALIKE) go test -vet=off -count=1 -timeout=60m -v ./simulation
	cd scheduler && $(ALIKE) go test -vet=off -count=1 $$($(ALIKE) go list ./... | grep -v simulation)
	cd operators && $(ALIKE) $(CONTROL_PLANE) TEST_ASSET_SCHEDULER="$(CURDIR)/$(SCHEDULER)" TEST_ASSET_PLUGIN="$(CURDIR)/$(PLUGIN)" TEST_ASSET_KWOK="$(CURDIR)/$(TOOLS)/kwok" TEST_ASSET_PARTITION_NODE="$(CURDIR)/$(OUT)/bin/partition-node" go test -vet=off -count=1 -timeout=60m -v -bench=. -benchtime=1x ./numaresources/scheduled
	cd operators && $(ALIKE) $(CONTROL_PLANE) TEST_ASSET_SCHEDULER="$(CURDIR)/$(SCHEDULER)" go test -vet=off -count=1 -v -run='^Test(TheSchedulerDoesWithTheRightsOfItsManifests|ReportsOfManyNodes)$$' ./numaresources/controller -args -nodes=1000
	@for release in $(filter v1.35.% v1.36.%,$(KNOWN)); do $(MAKE) --no-print-directory scheduler RELEASE=$$release; done
