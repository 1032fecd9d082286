// SPDX-License-Identifier: Apache-2.0

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
