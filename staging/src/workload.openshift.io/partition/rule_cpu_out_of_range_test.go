package partition

import (
	"testing"
)

func TestCPUOutOfRange(t *testing.T) {
	expectRule(t, ReasonCPUOutOfRange, map[string]ruleTest{
		"more than any host has":           {pod: pod(nil, container("a", "cpu=9E memory=1Mi", "")), holds: true},
		"more than 64 bits hold":           {pod: pod(nil, container("a", "memory=1Mi", "cpu=9223372036854776")), holds: true},
		"a millicore too many":             {pod: pod(nil, container("a", "cpu=1000000001m memory=1Mi", "")), holds: true},
		"a negative request":               {pod: pod(nil, container("a", "cpu=-1 memory=1Mi", "")), holds: true},
		"a negative limit":                 {pod: pod(nil, container("a", "memory=1Mi", "cpu=-1")), holds: true},
		"a request above its limit":        {pod: pod(nil, container("a", "cpu=2 memory=1Mi", "cpu=1")), holds: true},
		"of the second container":          {pod: pod(nil, container("a", "cpu=1 memory=1Mi", ""), container("b", "cpu=9E", "")), holds: true},
		"a Guaranteed pod is told of this": {pod: pod(nil, container("a", "cpu=9E memory=1Mi", "cpu=9E memory=1Mi")), holds: true},
		"the largest quantity":             {pod: pod(nil, container("a", "cpu=1M memory=1Mi", ""))},
		"a request as large as its limit":  {pod: pod(nil, container("a", "cpu=1 memory=1Mi", "cpu=1"))},
		"none":                             {pod: pod(nil, container("a", "memory=1Mi", ""))},
	})
}
