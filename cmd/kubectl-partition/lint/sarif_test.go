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

package lint

import "testing"

func TestSARIFIsValid(t *testing.T) {
	for name, r := range map[string]*Report{
		"without findings": lintText("", Options{}),
		"with findings":    lintText(documents(plain, deployment(asks, `{requests: {cpu: 1}}`)), Options{}),
		"with a problem":   lintText("{a", Options{}),
		"of a cluster":     Lint([]Source{{Data: []byte(documents(plain, deployment(asks, burstable)))}}, Options{}),
	} {
		t.Run(name, func(t *testing.T) {
			if err := r.SARIF().Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}
