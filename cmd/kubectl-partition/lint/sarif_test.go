// SPDX-License-Identifier: Apache-2.0

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
