// SPDX-License-Identifier: Apache-2.0

//go:build !v1.33

package plugin

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"workload.openshift.io/scheduler/internal/framework"
)

// PreFilter implements framework.PreFilterPlugin.
func (p *Plugin) PreFilter(_ context.Context, state framework.CycleState, pod *corev1.Pod, _ []framework.NodeInfo) (*framework.PreFilterResult, *framework.Status) {
	return nil, p.preFilter(state, pod)
}
