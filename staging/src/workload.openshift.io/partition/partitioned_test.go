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

import "testing"

// The kubelet knows a partitioned pod by what it has, whoever partitioned it.
func TestPartitionedType(t *testing.T) {
	const cores, others = "management.workload.openshift.io/cores=400", "infra.workload.openshift.io/cores=400"
	annotated := map[string]string{target: soft, ResourcesPrefix + "c": `{"cpushares":400}`, ResourcesPrefix + "d": `{"cpushares":2}`}
	theirs := map[string]string{target: soft, ResourcesPrefix + "c": `{"cpushares":409}`}
	for name, test := range map[string]struct {
		annotations map[string]string
		c, d        string // the requests of two containers
		want        string
	}{
		"cores, and all annotated":                         {annotated, cores, "", "management"},
		"BestEffort, and all annotated":                    {annotated, "", "", "management"},
		"OpenShift's kubelet annotates those with cores":   {theirs, cores, "memory=1Mi", "management"},
		"a zero is left where somebody would miss the key": {theirs, cores + " cpu=0", "", "management"},
		"no cores, and not all annotated":                  {theirs, "memory=1Mi", "", ""},
		"a container has cpu":                              {annotated, cores, "cpu=1m", ""},
		"a container has cores of another type":            {theirs, cores, others, ""},
		"all cores are of another type":                    {annotated, others, "", ""},
		"it does not ask":                                  {map[string]string{ResourcesPrefix + "c": "", ResourcesPrefix + "d": ""}, cores, "", ""},
		"it asks twice":                                    {map[string]string{target: soft, TargetPrefix + "infra": soft}, cores, "", ""},
	} {
		got, ok := PartitionedType(pod(test.annotations, container("c", test.c, ""), container("d", test.d, "")))
		if got != test.want || ok != (test.want != "") {
			t.Errorf("%s: got %q, %v; want %q", name, got, ok, test.want)
		}
	}
	// Weights come from the cores, never from the annotation.
	p := pod(theirs, container("c", cores, cores))
	if cpu := AsOrdinary(p, "management").Spec.Containers[0].Resources.Requests.Cpu().MilliValue(); cpu != 400 {
		t.Errorf("the container is taken for one of %dm, want 400m", cpu)
	}
}
