/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package partition

import (
	"strings"
	"testing"
)

func TestTypesThatMeanSomethingToKubernetesAreInvalid(t *testing.T) {
	for workloadType, valid := range map[string]bool{
		"requests": false, "hugepages-2mi": false, "hugepages-": false, "attachable-volumes-a": false,
		"hugepages": true, "request": true, "attachable": true, "management": true, "a-hugepages-b": true,
	} {
		if err := ValidateType(workloadType); (err == nil) != valid || (err != nil && !strings.Contains(err.Error(), `"`+workloadType+`"`)) {
			t.Errorf("%s: %v, want it valid: %v", workloadType, err, valid)
		}
	}
}
