// SPDX-License-Identifier: Apache-2.0

// Package rollout carries operations on nodes through: at most one on a node, no more of a group at
// once than its limit allows, each with an end that was observed. It knows neither what is done nor
// what nodes are otherwise (docs/dev/operators.md).
//
//	Requested --> Running --> Succeeded | Failed | RolledBack
//	    \-------------------> Failed
//
// Plan decides: what one look has shown goes in, what should be done comes out. Rollout does that:
// each action reads again what it changes, compares the id of the operation first, and writes with the
// resource version. So a look may be old, a write may fail or take effect without anybody hearing of
// it, the program may end between any two steps, and another one may run beside it: the next look goes
// on from what is there. Nothing is kept in memory.
//
// An operation begins with its locks, then takes the claim on its node and becomes Running in one
// write, and only then is started. It ends in the opposite order: its result is written, it is
// finished, its claim is released, then its locks. So a claim or a lock is there whenever something
// may run.
package rollout
