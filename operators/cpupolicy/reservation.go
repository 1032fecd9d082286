// SPDX-License-Identifier: Apache-2.0

package cpupolicy

import "k8s.io/apimachinery/pkg/api/resource"

// defaultMaxPods is the kubelet's own limit of pods on a node. What is reserved for pods beyond it
// is podSurcharge, in tenths of a millicore.
const (
	defaultMaxPods = 110
	podSurcharge   = 4000
)

// Reservation returns how much CPU a node with that many CPUs sets aside for its kubelet, its
// runtime and its system daemons: 6 % of the first CPU, 1 % of the second, 0.5 % of the third and
// the fourth, 0.25 % of each further one, and 400m more where the kubelet takes more than 110 pods.
// It is rounded up to whole millicores. Without a CPU there is nothing to reserve.
//
// The formula is Google's (docs.cloud.google.com, "Plan node sizes"), as Harvester's enhancement
// proposal on CPU pinning has it. There it is the value of both kubeReserved and systemReserved, so
// that a node gives away twice as much. Where there is a pinning file the pools are the reservation,
// and nobody asks for this.
func Reservation(cpus, maxPods int) resource.Quantity {
	if cpus < 1 {
		return resource.Quantity{}
	}
	tenths := int64(0)
	for cpu := 1; cpu <= cpus; cpu++ {
		switch {
		case cpu == 1:
			tenths += 600
		case cpu == 2:
			tenths += 100
		case cpu <= 4:
			tenths += 50
		default:
			tenths += 25
		}
	}
	if maxPods > defaultMaxPods {
		tenths += podSurcharge
	}
	return *resource.NewMilliQuantity((tenths+9)/10, resource.DecimalSI)
}
