// SPDX-License-Identifier: Apache-2.0

package app

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/companion/metrics"
)

func TestClaimsAreCounted(t *testing.T) {
	node := func(name, claim string) corev1.Node {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if claim != "" {
			n.Annotations = map[string]string{nodegroup.ClaimAnnotation: claim}
		}
		return n
	}
	t.Cleanup(metrics.NodeClaims.Reset)
	owners := []string{"cpupolicy", "tuning"}
	countClaims([]corev1.Node{node("released", `{"owner":"cpupolicy","operation":"a","since":"2026-11-23T10:00:00Z"}`)}, owners)
	countClaims([]corev1.Node{
		node("claimed", `{"owner":"cpupolicy","operation":"b","since":"2026-11-23T10:00:00Z"}`),
		node("unreadable", "{"),
		node("theirs", `{"owner":"ever another text","operation":"b","since":"2026-11-23T10:00:00Z"}`),
		node("released", ""),
	}, owners)
	want := strings.NewReader(`
# HELP partition_controller_node_claim_timestamp_seconds When a companion claimed the node, in seconds since the epoch; 0 if the claim cannot be read.
# TYPE partition_controller_node_claim_timestamp_seconds gauge
partition_controller_node_claim_timestamp_seconds{node="claimed",owner="cpupolicy"} 1.79542800e+09
partition_controller_node_claim_timestamp_seconds{node="theirs",owner="other"} 1.79542800e+09
partition_controller_node_claim_timestamp_seconds{node="unreadable",owner=""} 0
`)
	if err := testutil.CollectAndCompare(metrics.NodeClaims, want); err != nil {
		t.Error(err)
	}
}
