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

.PHONY: scheduler
scheduler: packages scheduler-plugin ## Build topo-aware-scheduler, which places pods by NUMA nodes
	@echo "building topo-aware-scheduler" >&2
	@cd scheduler && $(ALIKE) go build -buildvcs=false -ldflags='-s -w' -o "$(CURDIR)/$(OUT)/bin/" ./cmd/...

.PHONY: scheduler-test
scheduler-test: build kwok scheduler $(PLUGIN) ## Run its tests, with upstream's topology manager as the judge and against a kube-apiserver, and upstream's tests of the plugin
	cd scheduler && $(ALIKE) go test -vet=off -count=1 sigs.k8s.io/scheduler-plugins/pkg/...
	cd scheduler && $(ALIKE) go test -vet=off -count=1 -timeout=60m -v ./simulation
	cd scheduler && $(ALIKE) go test -vet=off -count=1 $$($(ALIKE) go list ./... | grep -v simulation)
	cd operators && $(ALIKE) $(CONTROL_PLANE) TEST_ASSET_SCHEDULER="$(CURDIR)/$(OUT)/bin/topo-aware-scheduler" TEST_ASSET_PLUGIN="$(CURDIR)/$(PLUGIN)" TEST_ASSET_KWOK="$(CURDIR)/$(TOOLS)/kwok" go test -vet=off -count=1 -timeout=30m -v -bench=. -benchtime=1x ./numaresources/scheduled
	cd operators && $(ALIKE) $(CONTROL_PLANE) TEST_ASSET_SCHEDULER="$(CURDIR)/$(OUT)/bin/topo-aware-scheduler" go test -vet=off -count=1 -run='^TestTheSchedulerDoesWithTheRightsOfItsManifests$$' ./numaresources/controller
