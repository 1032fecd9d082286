// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// worker returns a node of four CPUs, with the cores of some types.
func worker(types ...string) v1.Node {
	capacity := v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("8Gi"), v1.ResourcePods: resource.MustParse("110")}
	for _, workloadType := range types {
		capacity[v1.ResourceName(workloadType+".workload.openshift.io/cores")] = resource.MustParse("4000")
	}
	allocatable := capacity.DeepCopy()
	allocatable[v1.ResourceCPU] = resource.MustParse("3")
	return v1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "worker-1"},
		Status: v1.NodeStatus{NodeInfo: v1.NodeSystemInfo{KubeletVersion: "v1.37.0+wp.1234567"}, Capacity: capacity, Allocatable: allocatable}}
}

const (
	// shown are the configurations of running kubelets: without a pool, and with the pool 0.
	shownWithout = `{"kubeletconfig": {"cpuManagerPolicy": "none", "kubeReserved": {"cpu": "1"}}}`
	shownWith    = `{"kubeletconfig": {"cpuManagerPolicy": "static", "cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}, "reservedSystemCPUs": "0", "kubeReserved": {"cpu": "500m"}}}`
)

func TestPlanFromTheAPISaysWhatStaysUnknown(t *testing.T) {
	for name, test := range map[string]struct {
		node v1.Node
		// configz is what the kubelet answers; empty means that nobody may ask.
		configz         string
		pods            []v1.Pod
		present, wanted string
		// counted means that it is unknown which CPUs the node has.
		counted, podsUnknown bool
		verdict              Verdict
		actions, problems    []string
		wantText             string
	}{
		"a node without a file": {node: worker(), configz: shownWithout, pods: []v1.Pod{pod("a", "100m")}, wanted: "0", verdict: Safe,
			actions: []string{"Move ordinary pods 0-3>1-3 n/a", "Report " + cores + " >4000"}},
		"a pod falls out": {node: worker(), configz: shownWithout, pods: []v1.Pod{pod("a", "2500m")}, wanted: "0-1", verdict: Unsafe,
			actions: []string{"Move ordinary pods 0-3>2-3 n/a", "Report " + cores + " >4000"}, problems: []string{"Error PodFallsOut n/a"}},
		"the present pools are not known": {node: worker("management"), configz: shownWith, pods: []v1.Pod{pod("a", "100m")}, wanted: "0", verdict: Safe,
			actions: []string{"Move ordinary pods >1-3 n/a"}, problems: []string{"Info PresentPoolsUnknown"}},
		"it depends on what is configured": {node: worker("management"), configz: shownWith, pods: []v1.Pod{pod("a", "3")}, wanted: "1", verdict: Unknown,
			problems: []string{"Info PresentPoolsUnknown", "Unknown PodFallsOut n/a", "Unknown ReservedCPUsUnknown"}, actions: []string{"Move ordinary pods >2-3 n/a"}, wantText: `after the change "0-1" are reserved, or "1"`},
		"it does not depend on it": {node: worker("management"), configz: shownWith, pods: []v1.Pod{pod("a", "1")}, wanted: "1", verdict: Safe,
			problems: []string{"Info PresentPoolsUnknown", "Info ReservedCPUsUnknown"}, actions: []string{"Move ordinary pods >2-3 n/a"}},
		"a container may hold exclusive CPUs": {node: worker("management"), configz: shownWith, pods: []v1.Pod{pod("e", "1", guaranteed)}, wanted: "0-1", verdict: Unknown,
			problems: []string{"Info PresentPoolsUnknown", "Unknown ExclusiveCPUsUnknown"}, wantText: "These pods may hold some that the change takes, and would keep the kubelet from starting: n/e"},
		"no container loses what the present pool has": {node: worker("management"), configz: shownWith, pods: []v1.Pod{pod("e", "1", guaranteed)}, present: "0", wanted: "0", verdict: Safe},
		"the file goes, and with it what the pool has brought": {node: worker("management"), configz: shownWith, pods: []v1.Pod{pod("a", "100m")}, present: "0", wanted: "-", verdict: Safe,
			actions: []string{"Free ordinary pods 1-3>0-3 n/a", "Report " + cores + " 4000>"}, problems: []string{"Info ReservedCPUsUnknown", "Warning PinningFileMissing"}, wantText: "nor whether strict-cpu-reservation and reserved cgroups are"},
		"a kubelet that is not patched": {node: func() v1.Node { n := worker(); n.Status.NodeInfo.KubeletVersion = "v1.37.0"; return n }(), configz: shownWithout, wanted: "0", verdict: Safe,
			actions: []string{"Report " + cores + " >4000"}, problems: []string{"Warning KubeletUnpatched"}, wantText: `the kubelet's version is "v1.37.0"`},
		"a CPU that the host may lack": {node: worker(), configz: shownWithout, wanted: "7", counted: true, verdict: Unknown,
			actions: []string{"Report " + cores + " >4000"}, problems: []string{"Unknown OnlineCPUsUnknown"}, wantText: "the node has 4 CPUs, and the API does not say which: the kubelet does not start if the host has no CPU 7"},
		"a CPU that the host lacks, if others are numbered higher": {node: worker(), configz: shownWithout, wanted: "1", counted: true, verdict: Unknown,
			actions: []string{"Report " + cores + " >4000"}, problems: []string{"Unknown OnlineCPUsUnknown"}, wantText: "the kubelet does not start if the host has no CPU 1"},
		"CPUs that the kubelet reserves": {node: worker("management"), configz: shownWith, pods: []v1.Pod{pod("a", "100m")}, wanted: "0", counted: true, verdict: Safe,
			actions: []string{"Move ordinary pods >1-3 n/a"}, problems: []string{"Info PresentPoolsUnknown"}},
		"a Node with no cores left": {node: func() v1.Node {
			n := worker("management")
			n.Status.Capacity[cores], n.Status.NodeInfo.KubeletVersion = resource.MustParse("0"), "v1.37.0"
			return n
		}(), configz: shownWithout, wanted: "0", verdict: Safe,
			actions: []string{"Report " + cores + " >4000"}, problems: []string{"Warning KubeletUnpatched"}},
		"the configuration is forbidden": {node: worker(), pods: []v1.Pod{pod("a", "100m")}, wanted: "0", verdict: Unknown,
			actions: []string{"Report " + cores + " >4000"}, problems: []string{"Unknown KubeletConfigurationUnknown"}},
		"the pods are forbidden": {node: worker(), configz: shownWithout, podsUnknown: true, wanted: "0-1", verdict: Unknown,
			actions: []string{"Move ordinary pods 0-3>2-3", "Move pods of type management 0-3>0-1", "Report " + cores + " >4000"}, problems: []string{"Unknown PodsUnknown"}},
	} {
		t.Run(name, func(t *testing.T) {
			var answer struct {
				Configuration *kubeletconfig.KubeletConfiguration `json:"kubeletconfig"`
			}
			if err := json.Unmarshal([]byte(test.configz), &answer); test.configz != "" && err != nil {
				t.Fatal(err)
			}
			n := Seen(&test.node, answer.Configuration)
			if n.OnlineCounted = test.counted; !test.podsUnknown {
				n.Pods = append([]v1.Pod{}, test.pods...)
			}
			if test.present != "" {
				n.Present = pool(test.present)
			}
			p := n.Plan(pool(test.wanted))
			expect(t, p, test.verdict, test.actions, test.problems)
			found := test.wantText == ""
			for _, problem := range p.Problems {
				found = found || strings.Contains(problem.Text, test.wantText)
			}
			if !found {
				t.Errorf("no problem has the text %q: %+v", test.wantText, p.Problems)
			}
		})
	}
}
