package partition

import (
	"testing"
)

func TestGuaranteed(t *testing.T) {
	equal := container("a", "cpu=1 memory=1Mi", "cpu=1 memory=1Mi")
	expectRule(t, ReasonGuaranteed, map[string]ruleTest{
		"requests equal to limits":           {pod: pod(nil, equal), holds: true},
		"limits alone":                       {pod: pod(nil, container("a", "", "cpu=1 memory=1Mi")), holds: false},
		"limits alone, after API defaulting": {pod: pod(nil, container("a", "cpu=1 memory=1Mi", "cpu=1 memory=1Mi"), equal), holds: true},
		"apart by less than a millicore":     {pod: pod(nil, container("a", "cpu=999500u memory=1Mi", "cpu=1 memory=1Mi")), holds: true},
		"apart by a millicore":               {pod: pod(nil, container("a", "cpu=999m memory=1Mi", "cpu=1 memory=1Mi"))},
		"a sidecar that is Burstable":        {pod: pod(nil, equal, container("b", "memory=1Mi", ""))},
		"no limit of memory":                 {pod: pod(nil, container("a", "cpu=1 memory=1Mi", "cpu=1"))},
		"one that was partitioned before":    {pod: pod(map[string]string{ResourcesPrefix + "a": `{"cpushares":400,"cpulimit":500}`}, container("a", "cores=400 memory=1Mi", "cores=400 memory=1Mi"))},
	})
}
