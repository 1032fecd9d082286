// SPDX-License-Identifier: Apache-2.0

package pins_test

import (
	"testing"

	"workload.openshift.io/kubernetes/cmd/carry/internal/pins"
	"workload.openshift.io/kubernetes/cmd/carry/internal/treetest"
)

func TestUnknownReleasesAndMissingSumsAreRefused(t *testing.T) {
	c := treetest.New(t)
	_, _, err := c.Project.Release([]string{"v9.9.9"})
	treetest.ExpectError(t, err, `unknown release "v9.9.9"; known are v1.37.0`)
	if got, rest, err := c.Project.Release([]string{"kubelet"}); got != treetest.Release || len(rest) != 1 || err != nil {
		t.Errorf("got %s, %v, %v", got, rest, err)
	}
	c.Write("build/releases/"+treetest.Release+"/go.sum", "")
	_, err = pins.Read(c.Project, treetest.Release)
	treetest.ExpectError(t, err, "go.sum does not pin k8s.io/kubernetes@v1.37.0")
}
