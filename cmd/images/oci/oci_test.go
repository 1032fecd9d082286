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

package oci

import (
	"testing"
	"time"

	"workload.openshift.io/kubernetes/cmd/images/rootfs"
)

func TestAnImageDoesNotDependOnTheHostsTimeZone(t *testing.T) {
	in := func(zone *time.Location) string {
		date := time.Unix(0, 0).In(zone)
		layer, err := WriteLayer(t.TempDir(), rootfs.New(), date)
		if err != nil {
			t.Fatal(err)
		}
		image, err := Empty("linux/amd64")
		if err == nil {
			image, err = Append(image, layer, "test", Config{Date: date, Path: "/bin"})
		}
		if err != nil {
			t.Fatal(err)
		}
		digest, err := image.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return digest.String()
	}
	if utc, berlin := in(time.UTC), in(time.FixedZone("CET", 3600)); utc != berlin {
		t.Errorf("the digest is %s with the time zone UTC, and %s with CET", utc, berlin)
	}
}
