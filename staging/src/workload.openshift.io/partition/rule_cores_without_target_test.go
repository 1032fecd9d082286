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

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestCoresWithoutTargetBecomeCPU(t *testing.T) {
	for name, test := range map[string]struct{ pod, want *v1.Pod }{
		"a copy with the annotations of containers": {
			pod(map[string]string{ResourcesPrefix + "a": `{"cpushares":400,"cpulimit":500,"cpuset":"0"}`}, container("a", "cores=400 cpu=100m memory=1Mi", "cores=400")),
			pod(nil, container("a", "cpu=400m memory=1Mi", "cpu=500m")),
		},
		"a copy without annotations": {
			pod(nil, container("a", "cores=400 memory=1Mi", "cores=400")),
			pod(nil, container("a", "cpu=400m memory=1Mi", "")),
		},
		"cores of several types": {
			pod(nil, container("a", "cores=400 other.workload.openshift.io/cores=100", "")),
			pod(nil, container("a", "cpu=500m", "")),
		},
	} {
		d := Mutate(V1(test.pod), Policy{Gate: AnyType})
		if d.Outcome != Ordinary || d.Reason != ReasonCoresWithoutTarget {
			t.Errorf("%s: decided %q because of %q", name, d.Outcome, d.Reason)
		}
		if test.pod.Annotations[WarningAnnotation] != d.Message() {
			t.Errorf("%s: warned of %q", name, test.pod.Annotations)
		}
		delete(test.pod.Annotations, WarningAnnotation)
		expectEqual(t, test.pod, test.want)
	}
}
