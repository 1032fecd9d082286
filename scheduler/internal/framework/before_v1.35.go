// SPDX-License-Identifier: Apache-2.0

//go:build v1.33 || v1.34

package framework

import "k8s.io/kubernetes/pkg/scheduler/framework"

// What v1.35 moved, where it was before.
type (
	EnqueueExtensions   = framework.EnqueueExtensions
	FilterPlugin        = framework.FilterPlugin
	Handle              = framework.Handle
	Plugin              = framework.Plugin
	PreFilterExtensions = framework.PreFilterExtensions
	PreFilterPlugin     = framework.PreFilterPlugin
	PreFilterResult     = framework.PreFilterResult
	PreScorePlugin      = framework.PreScorePlugin
	ReservePlugin       = framework.ReservePlugin
	ScoreExtensions     = framework.ScoreExtensions
	ScorePlugin         = framework.ScorePlugin
)
