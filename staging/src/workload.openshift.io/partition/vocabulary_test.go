package partition

import (
	"strings"
	"testing"
)

func TestTypesThatMeanSomethingToKubernetes(t *testing.T) {
	for workloadType, valid := range map[string]bool{
		"requests": false, "hugepages-2mi": false, "hugepages-": false, "attachable-volumes-a": false,
		"hugepages": true, "request": true, "attachable": true, "management": true, "a-hugepages-b": true,
	} {
		if err := ValidateType(workloadType); (err == nil) != valid || (err != nil && !strings.Contains(err.Error(), `"`+workloadType+`"`)) {
			t.Errorf("%s: %v, want it valid: %v", workloadType, err, valid)
		}
	}
}
