// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/onsi/ginkgo/v2/types"
	"golang.org/x/sync/errgroup"
)

// Run runs those of the specs that have no result yet: first those that may run in parallel, in that
// many processes, then the serial ones. With one process at a time all are serial, and share batches.
// What a process did not finish, since it crashed or took too long, runs again alone; if it does not
// finish then either, it has failed. Before that, what is left runs together again if what it ran on was lost. Progress is called for each process that ended. Run ends
// with an error where the cluster runs no spec at all.
func (s *Suite) Run(ctx context.Context, specs []Spec, parallel int, results *Results, progress func(done, all int, failed []Spec)) error {
	r := &runner{suite: s, specs: specs, results: results, progress: progress}
	missing := results.Missing(specs)
	var together, alone []Spec
	for _, spec := range missing {
		if spec.Serial {
			alone = append(alone, spec)
		} else {
			together = append(together, spec)
		}
	}
	together = spread(together)
	if parallel <= 1 {
		together, alone = nil, append(together, alone...)
	}
	if err := r.all(ctx, together, parallel); err != nil {
		return err
	}
	return r.all(ctx, alone, 1)
}

// spread returns specs in an order that has nothing to do with what they are about, and is always the
// same. The specs of one file often take equally long: those of probes would take four minutes each,
// one after another, while other processes have nothing left to do.
func spread(specs []Spec) []Spec {
	key := func(spec Spec) uint64 {
		hash := fnv.New64a()
		hash.Write([]byte(spec.Name))
		return hash.Sum64()
	}
	return slices.SortedFunc(slices.Values(specs), func(a, b Spec) int { return cmp.Compare(key(a), key(b)) })
}

type runner struct {
	suite    *Suite
	specs    []Spec
	progress func(done, all int, failed []Spec)

	// mu guards what follows.
	mu      sync.Mutex
	results *Results
	number  int
}

// all runs specs in batches, so many at a time.
func (r *runner) all(ctx context.Context, specs []Spec, parallel int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(1, parallel))
	for some := range slices.Chunk(specs, cmp.Or(r.suite.Batch, batchSize(len(specs), parallel))) {
		group.Go(func() error {
			left, why, err := r.batch(ctx, some)
			if err == nil && len(left) > 1 && r.suite.lost(why) {
				r.suite.say("%d specs did not finish, and run again: %v", len(left), why)
				left, why, err = r.batch(ctx, left)
			}
			if err == nil && len(left) > 0 {
				r.suite.say("%d specs did not finish, and run again, each alone: %v", len(left), why)
			}
			for _, spec := range left {
				if err != nil {
					break
				}
				err = r.alone(ctx, spec)
			}
			return err
		})
	}
	return group.Wait()
}

// batchSize returns how many specs to run in one process: four, or so few that there are three batches
// for each of those that run at a time. Otherwise, with few specs, two long ones in one batch would run
// while there is nothing left to run in parallel. Serial specs run alone anyway.
func batchSize(specs, parallel int) int {
	if parallel <= 1 {
		return 4
	}
	return max(1, min(4, specs/(3*parallel)))
}

// alone runs a spec in a separate process.
func (r *runner) alone(ctx context.Context, spec Spec) error {
	left, why, err := r.batch(ctx, []Spec{spec})
	if err != nil || len(left) == 0 {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	return r.results.add(types.SpecReport{
		LeafNodeType: types.NodeTypeIt, LeafNodeText: spec.Name, State: types.SpecStateFailed, IsSerial: spec.Serial, StartTime: now, EndTime: now,
		Failure: types.Failure{Message: fmt.Sprintf("it did not run to its end: %v", why)},
	})
}

// batch runs specs in one process. It returns those that did not run to their end, and why.
func (r *runner) batch(ctx context.Context, specs []Spec) (left []Spec, why, err error) {
	var reports []types.SpecReport
	for i := range max(1, r.suite.SetUps) {
		if i > 0 {
			r.suite.say("the tests start again: %v", err)
		}
		if reports, why, err = r.suite.run(ctx, r.logName(), specs); ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		if err == nil {
			break
		}
	}
	if err != nil {
		return nil, nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.results.add(reports...); err != nil {
		return nil, nil, err
	}
	_, failed := r.results.Count(specs)
	done := len(r.specs) - len(r.results.Missing(r.specs))
	r.progress(done, len(r.specs), failed)
	return r.results.Missing(specs), why, nil
}

// logName returns the name of the next process' log.
func (r *runner) logName() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.number++
	return fmt.Sprintf("%s-%03d", time.Now().UTC().Format("150405"), r.number)
}
