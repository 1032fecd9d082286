package partition

import (
	"testing"
)

func TestHugePagesNeedCPU(t *testing.T) {
	burstable := container("b", "memory=1Mi", "")
	expectRule(t, ReasonHugePagesNeedCPU, map[string]ruleTest{
		"huge pages and cpu":            {pod: pod(nil, container("a", "cpu=100m hugepages-2Mi=2Mi", "hugepages-2Mi=2Mi"), burstable), holds: true},
		"huge pages as a limit alone":   {pod: pod(nil, container("a", "cpu=100m", "hugepages-1Gi=1Gi"), burstable), holds: true},
		"huge pages beside memory":      {pod: pod(nil, container("a", "cpu=100m memory=1Mi hugepages-2Mi=2Mi", "hugepages-2Mi=2Mi"))},
		"a memory limit is memory, too": {pod: pod(nil, container("a", "cpu=100m hugepages-2Mi=2Mi", "hugepages-2Mi=2Mi memory=1Mi"))},
		"in different containers":       {pod: pod(nil, container("a", "hugepages-2Mi=2Mi", "hugepages-2Mi=2Mi"), container("b", "cpu=100m memory=1Mi", ""))},
	})
}
