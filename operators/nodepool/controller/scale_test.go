// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/internal/testenv"
)

// A hundred pools of one hosted cluster share a source, so that one edit changes all copies.
func TestAHundredPools(t *testing.T) {
	m := newManagement(t).withControlPlane()
	m.configMap("sysctls", "tuning", aTuned("swap", "10"))
	const pools = 100
	for i := range pools {
		m.pool(fmt.Sprintf("pool-%d", i), []string{"sysctls"}, nil)
	}
	m.start()
	for _, value := range []string{"10", "20"} {
		started := time.Now()
		m.configMap("sysctls", "tuning", aTuned("swap", value))
		testenv.Eventually(t, 30*time.Second, func() error {
			var list corev1.ConfigMapList
			m.do(m.List(t.Context(), &list, client.InNamespace(m.controlPlane), client.MatchingLabels{companion.OwnerLabel: Name}))
			updated := 0
			for _, copied := range list.Items {
				if strings.Contains(copied.Data["tuning"], "vm.swappiness="+value+"\n") {
					updated++
				}
			}
			if updated < pools {
				return fmt.Errorf("%d copies of %d have it", updated, pools)
			}
			return nil
		})
		took := time.Since(started)
		t.Logf("%d copies have %s after %s", pools, value, took.Round(time.Millisecond))
		if value == "20" && took > soon {
			t.Errorf("an edit takes %s to reach the last of %d pools, want %s", took, pools, soon)
		}
	}
}
