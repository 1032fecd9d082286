// SPDX-License-Identifier: Apache-2.0

// Package lint holds the checks of make lint that need to read Go: whether documentation
// agrees with the table that it is made from, whether it names every metric and message,
// whether the patches and scripts in it do what it says, whether scripts/parts remembers only what has
// passed, and whether packages import what they must not know. They are tests, and there is nothing else in
// the package. No tree of a release lists it.
package lint
