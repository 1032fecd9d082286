// SPDX-License-Identifier: Apache-2.0

//go:build race

package rollout

func init() { *histories /= 20 } // the race detector makes each take ten times as long
