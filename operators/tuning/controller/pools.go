// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/tuning"
)

// pools are the Tuneds of all NodePools, as the ConfigMaps at home had them when all of a pool's were valid.
type pools struct {
	mu sync.RWMutex
	// looked is true once the ConfigMaps were read.
	looked bool
	valid  map[string][]tunedv1.Tuned
	// unknown are pools of which it is not known what counts, unless it is in valid: their ConfigMap is not valid, or is missing
	// and the hosted cluster still has their Tuneds.
	unknown map[string]bool
	// changed takes the pools whose nodes may get another Profile. The empty name is all.
	changed chan string
}

func newPools() *pools { return &pools{changed: make(chan string, 1024)} }

// of returns the Tuneds that count for the nodes of a pool, with the names that they have in the hosted cluster. It is not known
// what counts before the first look, and where a pool's ConfigMap is not valid and never was since this process runs. A pool
// without a ConfigMap has none but the default.
func (p *pools) of(pool string) (tuneds []tunedv1.Tuned, known bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	valid, ok := p.valid[pool]
	if !p.looked || p.unknown[pool] && !ok {
		return nil, false
	}
	return append([]tunedv1.Tuned{*tuning.Default()}, valid...), true
}

// set takes what a look at the ConfigMaps has shown: the valid pools, and the errors of the others; and the pools of which the
// hosted cluster has Tuneds. Of a pool that is not valid, what was valid last still counts; so it does while a ConfigMap that is
// missing may come back. It returns which Tuneds are to be in the hosted cluster, by pool.
func (p *pools) set(valid map[string][]tunedv1.Tuned, broken map[string]error, left map[string]bool) map[string][]tunedv1.Tuned {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, wanted, unknown := maps.Clone(valid), maps.Clone(valid), map[string]bool{}
	for pool := range broken {
		unknown[pool] = true
		if last, ok := p.valid[pool]; ok {
			now[pool], wanted[pool] = last, last
		}
	}
	for pool := range left {
		if _, ok := valid[pool]; ok || unknown[pool] {
			continue
		}
		unknown[pool] = true
		if last, ok := p.valid[pool]; ok {
			now[pool] = last
		}
	}
	var changed []string
	for pool, tuneds := range now {
		if before, ok := p.valid[pool]; !ok || !equality.Semantic.DeepEqual(before, tuneds) {
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
	p.looked, p.valid, p.unknown = true, now, unknown
	for _, pool := range changed {
		p.tell(pool)
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
