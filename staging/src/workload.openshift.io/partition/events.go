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

// Reasons of the Events that the kubelet sends on its Node (design, section 8, and more).
const (
	EventEnabled                 = "WorkloadPartitioningEnabled"
	EventStaticPodNotPartitioned = "StaticPodNotPartitioned"
	EventCPUOffline              = "WorkloadPartitioningCPUOffline"
	EventCPUOnline               = "WorkloadPartitioningCPUOnline"
	EventNoSharedCPUs            = "NoSharedCPUs"
	EventReservedDiffer          = "ReservedCPUsDiffer"
	EventReservationDropped      = "ReservedCgroupDropped"
	EventEveryCPU                = "PoolsHoldEveryCPU"
	EventFileMissing             = "PinningFileMissing"
	EventDirectoryOwner          = "PinningFileDirectoryOwner"
	EventRecordNotWritten        = "PoolsNotRecorded"
	EventCgroupLacksCPUs         = "PodCgroupLacksPoolCPUs"
	EventPodsNoLongerFit         = "PodsNoLongerFit"
	EventContainerNotMoved       = "ContainerNotMoved"
	EventPoolSplitsCore          = "PoolSplitsCore"
	EventPoolOnIsolated          = "PoolOnIsolatedCPUs"
)
