// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/companion/metrics"
)

func init() {
	ctrlmetrics.Registry.MustRegister(metrics.Set.Metrics...)
}

// claimsPeriod is how often metrics.NodeClaims is brought up to date. The alert waits for an hour.
const claimsPeriod = 30 * time.Second

// watchClaims keeps metrics.NodeClaims up to date where controllers run, on the leader. The claims are those
// of all companions. It reads nodes from the cache, so that this costs no request.
func watchClaims(nodes client.Reader, owners []string) manager.Runnable {
	return manager.RunnableFunc(func(ctx context.Context) error {
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			var list corev1.NodeList
			if err := nodes.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
				klog.FromContext(ctx).Error(err, "Cannot see which nodes are claimed")
				return
			}
			countClaims(list.Items, owners)
		}, claimsPeriod)
		return nil
	})
}

// countClaims sets metrics.NodeClaims to the claims of all nodes. An owner that is none of the companions is "other": a node may
// claim itself for ever another one.
func countClaims(nodes []corev1.Node, owners []string) {
	metrics.NodeClaims.Reset()
	for i := range nodes {
		claim, err := nodegroup.ClaimOf(&nodes[i])
		switch {
		case err != nil:
			metrics.NodeClaims.WithLabelValues(nodes[i].Name, "").Set(0)
		case claim != nodegroup.Claim{}:
			owner := "other"
			if slices.Contains(owners, claim.Owner) {
				owner = claim.Owner
			}
			metrics.NodeClaims.WithLabelValues(nodes[i].Name, owner).Set(float64(claim.Since.Unix()))
		}
	}
}
