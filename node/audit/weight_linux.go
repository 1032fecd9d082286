// SPDX-License-Identifier: Apache-2.0

package audit

import "github.com/opencontainers/cgroups"

// newerWeight is how newer runtimes convert shares.
func newerWeight(shares int64) int64 {
	return int64(cgroups.ConvertCPUSharesToCgroupV2Value(uint64(shares)))
}
