package partition

import (
	"testing"
)

func TestQoSChange(t *testing.T) {
	expectRule(t, ReasonQoSChange, map[string]ruleTest{
		"cpu is the only request":                 {pod: pod(nil, container("a", "cpu=100m", "")), holds: true},
		"of two containers":                       {pod: pod(nil, container("a", "cpu=100m", ""), container("b", "", "")), holds: true},
		"beside huge pages":                       {pod: pod(nil, container("a", "cpu=100m hugepages-2Mi=2Mi", "hugepages-2Mi=2Mi")), holds: true},
		"a container has a memory request":        {pod: pod(nil, container("a", "cpu=100m", ""), container("b", "memory=1Mi", ""))},
		"a BestEffort pod":                        {pod: pod(nil, container("a", "", ""))},
		"a request of zero, which counts nowhere": {pod: pod(nil, container("a", "cpu=0", ""))},
	})
}
