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

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"workload.openshift.io/partition"
)

func TestEventsWaitForTheRecorder(t *testing.T) {
	on(t, management)
	t.Cleanup(func() { shim.observed = observation{} })
	nodeEvent(v1.EventTypeWarning, partition.EventFileMissing, "early")
	recorder := record.NewFakeRecorder(10)
	SendEventsTo(recorder, "node")
	expectEvent(t, recorder, "Warning PinningFileMissing early")
	expectEvent(t, recorder, `Normal WorkloadPartitioningEnabled The pool of workload type management has the CPUs "0-1"`)
	expectEvent(t, recorder, "")
}
