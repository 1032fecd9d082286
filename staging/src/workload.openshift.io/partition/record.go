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

// RecordName is the name of the record in the kubelet's root directory.
const RecordName = "workload_partitioning_state"

// Record is what the record says (design, section 6, the record): the cpusets that the kubelet
// gave to containers. From it a later kubelet knows which cpusets to take back. Any other was
// given by another program, and stays. In the file a checksum follows.
type Record struct {
	// ReservedCPUs are the CPUs of all pools. Versions before Sets wrote nothing else.
	ReservedCPUs string `json:"reservedCPUs"`
	// Sets are the pools, and what they left for others: those of this pinning file, and of
	// previous ones whose containers may not all have moved yet.
	Sets []string `json:"sets,omitempty"`
	// Before is what ReservedCPUs was before it last changed. Nothing but a message depends on
	// it, so that the checksum leaves it out: versions before it know only the others.
	Before string `json:"before,omitempty"`
}
