// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/image"
)

// The specs of test/workloadpartitioning, which users can run on any cluster, pass on a
// partitioned node.
func TestSpecsOfAnyClusterPass(t *testing.T) {
	in(t, compiledSpecs)
	c := partitioned(t)
	quietNode(t, c)
	writeStaticPods(t, c, staticPod("specs-static", asks, "sleep 1000", "cpu=10m memory=8Mi", ""))
	report := filepath.Join(t.TempDir(), "report.json")
	command := exec.CommandContext(t.Context(), specs, "-kubeconfig="+host.Kubeconfig, "-partitioning-image="+image.Busybox, "-ginkgo.json-report="+report)
	if output, err := command.CombinedOutput(); err != nil {
		t.Errorf("the specs failed: %v\n%s", err, output)
	}
	data, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var suites []struct {
		SpecReports []struct {
			LeafNodeText, State string
			Failure             struct{ Message string }
		}
	}
	if err := json.Unmarshal(data, &suites); err != nil {
		t.Fatal(err)
	}
	passed := 0
	for _, suite := range suites {
		for _, spec := range suite.SpecReports {
			switch {
			case spec.State == "passed" && spec.LeafNodeText != "":
				passed++
			case spec.State == "skipped" && !strings.Contains(spec.Failure.Message, "feature gate"):
				t.Errorf("skipped: %s: %s", spec.LeafNodeText, spec.Failure.Message)
			}
		}
	}
	t.Logf("%d specs passed", passed)
	if passed < 30 {
		t.Errorf("only %d specs passed", passed)
	}
}
