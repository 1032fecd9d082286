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
	"testing"
	"time"
)

// The conversions give what upstream's do, whose package cannot be imported here
// (pkg/kubelet/cm/helpers_linux_test.go has these values).
func TestWeightsAndQuotasAreUpstreams(t *testing.T) {
	for millicores, want := range map[int64]int64{0: 2, 1: 2, 100: 102, 400: 409, 1000: 1024, 300000: 262144} {
		if got := SharesOf(millicores); got != want {
			t.Errorf("%dm are %d shares, want %d", millicores, got, want)
		}
	}
	for millicores, want := range map[int64]int64{0: 0, 1: 1000, 10: 1000, 200: 20000, 1500: 150000} {
		if got := QuotaOf(millicores, 100*time.Millisecond); got != want {
			t.Errorf("%dm are a quota of %d, want %d", millicores, got, want)
		}
	}
	for shares, want := range map[int64]int64{2: 1, 102: 4, 409: 16, 1024: 39, 262144: 10000} {
		if got := WeightOf(shares); got != want {
			t.Errorf("%d shares are the weight %d, want %d", shares, got, want)
		}
	}
}
