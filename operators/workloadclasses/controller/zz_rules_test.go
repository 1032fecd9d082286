// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	"workload.openshift.io/operators/internal/companiontest"
)

func TestMain(m *testing.M) { companiontest.Main(m, &Companion{}) }
