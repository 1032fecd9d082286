// SPDX-License-Identifier: Apache-2.0

// Package companiontest holds the rules that every companion keeps, as tests: docs/dev/operators.md
// lists them. A companion's package calls Main and Run, and then tests what is its own.
package companiontest
