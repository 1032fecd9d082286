// SPDX-License-Identifier: Apache-2.0

// Package nodegroup says which nodes belong together, and who may act on them: on one node by a
// claim, on several by a lock. It knows neither who acts nor what is done (docs/dev/operators.md).
//
// Whatever this package writes it writes with the resource version that it has read. A conflict is
// an error like any other: nothing was written, and the caller looks again.
package nodegroup
