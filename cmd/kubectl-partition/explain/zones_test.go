// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"testing"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/operators/numaresources"
)

func TestZonesNameWhatIsMissing(t *testing.T) {
	now := time.Now()
	report := func(name, policy string, at time.Time, free ...int64) v1alpha2.NodeResourceTopology {
		r := v1alpha2.NodeResourceTopology{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{numaresources.HeartbeatAnnotation: at.UTC().Format(time.RFC3339)}},
			Attributes: v1alpha2.AttributeList{{Name: numaresources.AttributePolicy, Value: policy}},
		}
		for i, n := range free {
			eight := *resource.NewQuantity(8, resource.DecimalSI)
			r.Zones = append(r.Zones, v1alpha2.Zone{Name: numaresources.ZoneName(i), Type: numaresources.ZoneType, Resources: v1alpha2.ResourceInfoList{
				{Name: "cpu", Capacity: eight, Allocatable: eight, Available: *resource.NewQuantity(n, resource.DecimalSI)}}})
		}
		return r
	}
	pod := func(class v1.PodQOSClass, cpu string) *v1.Pod {
		return &v1.Pod{Status: v1.PodStatus{QOSClass: class}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "app", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse(cpu)}}}}}}
	}
	for _, test := range []struct {
		name   string
		pod    *v1.Pod
		report v1alpha2.NodeResourceTopology
		want   string
	}{
		{"a zone that lacks two CPUs", pod(v1.PodQOSGuaranteed, "4"), report("n", "single-numa-node", now, 1, 2), "n NoZone node-1 cpu 2"},
		{"a zone that has room", pod(v1.PodQOSGuaranteed, "4"), report("n", "restricted", now, 1, 4), "n    "},
		{"a pod that is larger than each zone", pod(v1.PodQOSGuaranteed, "9"), report("n", "single-numa-node", now, 8, 8), "n TooLarge  cpu 1"},
		{"a report that is old", pod(v1.PodQOSGuaranteed, "4"), report("n", "restricted", now.Add(-time.Hour), 8), "n Unknown   "},
		{"a pod that shares CPUs", pod(v1.PodQOSBurstable, "4"), report("n", "restricted", now, 1), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := ""
			for _, z := range Zones(test.pod, []v1alpha2.NodeResourceTopology{test.report}, now) {
				got += fmt.Sprint(z.Node, " ", z.Reason, " ", z.Zone, " ", z.Resource, " ", z.Missing)
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
