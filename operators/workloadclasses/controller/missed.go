// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/workloadclasses/metrics"
)

// missed counts the pods that came without their class, since nobody answered the webhook. Those of classes are
// in a cache, and these are not: it reads them from the API, a few at a time.
type missed struct {
	rules  *rules
	live   client.Reader
	period time.Duration
}

// missedPeriod is the time between two counts, for one between two evaluations. A count reads all pods.
func missedPeriod(period time.Duration) time.Duration { return 5 * period }

// Start implements manager.Runnable. It runs on the leader.
func (m *missed) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := m.count(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot see which pods have no class")
		}
	}, m.period)
	return nil
}

func (m *missed) count(ctx context.Context) error {
	config := m.rules.current.Load()
	counts := map[string]float64{}
	options := &client.ListOptions{LabelSelector: podsWhoseClass(selection.DoesNotExist), Limit: 500}
	for {
		var pods corev1.PodList
		if err := m.live.List(ctx, &pods, options); err != nil {
			return err
		}
		for i := range pods.Items {
			if class := config.Missed(&pods.Items[i]); class != nil {
				counts[class.Name]++
			}
		}
		if options.Continue = pods.Continue; options.Continue == "" {
			break
		}
	}
	for _, class := range config.Classes {
		metrics.Missed.WithLabelValues(class.Name).Set(counts[class.Name])
	}
	return nil
}
