// SPDX-License-Identifier: Apache-2.0

package policyclient

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWhatADrainTakesAwayIsNotInTheWay(t *testing.T) {
	evicted := []corev1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web"}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "vms", Name: "virt-launcher-db-x", Labels: map[string]string{"vm.kubevirt.io/name": "db"}}},
	}
	all := []Reason{
		{"ExclusivePod", "pod a/web", "pod a/web is Guaranteed and asks for whole CPUs (2); delete it"},
		{"ExclusivePod", "pod a/web-2", "pod a/web-2 is Guaranteed and asks for whole CPUs (2); delete it"},
		{"PinnedVM", "VirtualMachineInstance vms/db", "VirtualMachineInstance vms/db has dedicatedCpuPlacement, and runs on the node; stop it"},
		{"PinnedVM", "VirtualMachineInstance vms/other", "VirtualMachineInstance vms/other has dedicatedCpuPlacement, and runs on the node; stop it"},
		{"ContainersHoldCPUs", "node w1", "node w1 refuses: container c of pod a/web has CPU 2 exclusively; migrate or stop it first"},
		{"Observed", "", "the agent saw that at 2026-11-27T10:00:00Z"},
		{"NoReservation", "node w1", "node w1 reserves no CPU"},
	}
	reasons, later := withoutEvicted(all, evicted)
	if want := []Reason{all[1], all[3], all[6]}; !slices.Equal(reasons, want) {
		t.Errorf("in the way are %q, want %q", reasons, want)
	}
	if want := []Reason{all[4]}; !slices.Equal(later, want) {
		t.Errorf("looked at again are %q, want %q", later, want)
	}
	flag := []Reason{{"NodeRefuses", "node w1", "node w1 refuses: the flag is set"}, all[4], all[5]}
	if reasons, later := withoutEvicted(flag, evicted); !slices.Equal(reasons, []Reason{flag[0], all[5]}) || !slices.Equal(later, []Reason{all[4]}) {
		t.Errorf("of what an agent has said in the way is %q, and later %q", reasons, later)
	}
	if reasons, later := withoutEvicted(all, nil); !slices.Equal(reasons, all) || later != nil {
		t.Errorf("without a drain in the way are %q, and later %q", reasons, later)
	}
}
