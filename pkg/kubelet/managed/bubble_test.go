//go:build go1.25

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

package managed

import (
	"testing"
	"testing/synctest"
)

// inBubble runs a test that starts goroutines, and ends it once they have ended. Time does not
// pass while they sleep.
func inBubble(test func(t *testing.T)) func(t *testing.T) {
	return func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			defer synctest.Wait()
			test(t)
		})
	}
}
