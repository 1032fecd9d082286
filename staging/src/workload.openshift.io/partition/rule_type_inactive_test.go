package partition

import (
	"testing"
)

func TestTypeInactive(t *testing.T) {
	only := func(active string) Policy {
		return Policy{Gate: func(workloadType string) Reason {
			if workloadType != active {
				return ReasonTypeInactive
			}
			return NoReason
		}}
	}
	expectRule(t, ReasonTypeInactive, map[string]ruleTest{
		"another type is active":             {pod: pod(nil, container("a", "cpu=100m memory=1Mi", "")), policy: only("infra"), holds: true},
		"of a Guaranteed pod as well":        {pod: pod(nil, container("a", "cpu=1 memory=1Mi", "cpu=1 memory=1Mi")), policy: only("infra"), holds: true},
		"the type that the pod asks for, is": {pod: pod(nil, container("a", "cpu=100m memory=1Mi", "")), policy: only("management")},
	})
}
