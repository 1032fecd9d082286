// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/performance"
	"workload.openshift.io/operators/tuning"
)

// pools are the Tuneds of all NodePools, as the ConfigMaps at home had them when all of a pool's were valid.
type pools struct {
	mu sync.RWMutex
	// looked is true once the ConfigMaps were read.
	looked bool
	valid  map[string][]tunedv1.Tuned
	// details are the rest of what a pool in valid has.
	details map[string]details
	// unknown are pools of which it is not known what counts, unless it is in valid: their ConfigMap is not valid, or is missing
	// and the hosted cluster still has their Tuneds.
	unknown map[string]bool
	// errs are those of the pools whose ConfigMaps are not valid.
	errs map[string]error
	// changed takes the pools whose nodes may get another Profile. The empty name is all.
	changed chan string
	// looks takes each look at the ConfigMaps.
	looks chan struct{}
}

// details is what a pool has besides its Tuneds.
type details struct {
	// input is the InputHash of its configuration.
	input string
	// performance is its PerformanceProfile, or nil. Its Tuned is among the pool's.
	performance *performance.Rendered
}

func newPools() *pools {
	return &pools{changed: make(chan string, 1024), looks: make(chan struct{}, 1)}
}

// of returns the Tuneds that count for the nodes of a pool, with the names that they have in the hosted cluster. It is not known
// what counts before the first look, and where a pool's ConfigMap is not valid and never was since this process runs. A pool
// without a ConfigMap has none but the default. The input tells configurations apart.
func (p *pools) of(pool string) (tuneds []tunedv1.Tuned, input string, known bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	valid, ok := p.valid[pool]
	if !p.looked || p.unknown[pool] && !ok {
		return nil, "", false
	}
	return append([]tunedv1.Tuned{*tuning.Default()}, valid...), p.details[pool].input, true
}

// broken returns why a pool's configuration is not valid, or nil.
func (p *pools) broken(pool string) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.errs[pool]
}

// all returns the pools whose configuration is known, and the names of those of which it is not known. Looked is whether the
// ConfigMaps were read at all.
func (p *pools) all() (valid map[string][]tunedv1.Tuned, of map[string]details, unknown map[string]bool, looked bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return maps.Clone(p.valid), maps.Clone(p.details), maps.Clone(p.unknown), p.looked
}

// set takes what a look at the ConfigMaps has shown: the valid pools, and the errors of the others; and the pools of which the
// hosted cluster has Tuneds. Of a pool that is not valid, what was valid last still counts; so it does while a ConfigMap that is
// missing may come back. It returns which Tuneds are to be in the hosted cluster, by pool.
func (p *pools) set(valid map[string][]tunedv1.Tuned, of map[string]details, broken map[string]error, left map[string]bool) map[string][]tunedv1.Tuned {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, wanted, unknown := maps.Clone(valid), maps.Clone(valid), map[string]bool{}
	more := map[string]details{}
	maps.Copy(more, of)
	for pool := range broken {
		unknown[pool] = true
		if last, ok := p.valid[pool]; ok {
			now[pool], wanted[pool], more[pool] = last, last, p.details[pool]
		}
	}
	for pool := range left {
		if _, ok := valid[pool]; ok || unknown[pool] {
			continue
		}
		unknown[pool] = true
		if last, ok := p.valid[pool]; ok {
			now[pool], more[pool] = last, p.details[pool]
		}
	}
	var changed []string
	for pool, tuneds := range now {
		if before, ok := p.valid[pool]; !ok || p.details[pool].input != more[pool].input || !equality.Semantic.DeepEqual(before, tuneds) {
			changed = append(changed, pool)
		}
	}
	for pool := range p.valid {
		if _, ok := now[pool]; !ok {
			changed = append(changed, pool)
		}
	}
	for pool := range p.unknown {
		if _, ok := now[pool]; !ok && !unknown[pool] {
			changed = append(changed, pool)
		}
	}
	if !p.looked {
		changed = []string{""}
	}
	p.looked, p.valid, p.details, p.unknown, p.errs = true, now, more, unknown, broken
	for _, pool := range changed {
		p.tell(pool)
	}
	select {
	case p.looks <- struct{}{}:
	default: // one that nobody has taken yet is as good
	}
	return wanted
}

// tell has the nodes of a pool looked at.
func (p *pools) tell(pool string) {
	select {
	case p.changed <- pool:
	default: // nobody takes them: the reconciler of Profiles does not run yet, and will look at all nodes
	}
}
