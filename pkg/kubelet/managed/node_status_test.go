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
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest"
)

func TestNodeHasTheCoresOfItsTypesAndNoOthers(t *testing.T) {
	on(t, partition.Pools{"management": cpuset.New(0), "other": cpuset.New()})
	node := partitiontest.Node("a", "stale")
	node.Status.Capacity["example.com/gpu"] = resource.MustParse("1")
	node.Status.Allocatable = maps.Clone(node.Status.Capacity)
	if err := SetCores(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]v1.ResourceList{"capacity": node.Status.Capacity, "allocatable": node.Status.Allocatable} {
		cores, other := got["management.workload.openshift.io/cores"], got["other.workload.openshift.io/cores"]
		if cores.Value() != 4000 || other.Value() != 4000 || len(got) != 4 {
			t.Errorf("%s is %v", name, got)
		}
	}
}

// A kubelet without this project leaves the cores at zero on the Node.
func TestPodsAreAdmittedByTheCoresOfTheirTypes(t *testing.T) {
	on(t, partition.Pools{"management": cpuset.New(0), "other": cpuset.New()})
	left := partitiontest.Node("a", "management")
	left.Status.Capacity["management.workload.openshift.io/cores"] = resource.MustParse("0")
	before := left.DeepCopy()
	got := map[v1.ResourceName]int64{}
	set := func(name v1.ResourceName, millicores int64) { got[name] = millicores }
	SetAdmissionCores(left, set)
	if len(got) != 2 || got["management.workload.openshift.io/cores"] != 4000 || got["other.workload.openshift.io/cores"] != 4000 {
		t.Errorf("pods are admitted by %v", got)
	}
	if !equality.Semantic.DeepEqual(left, before) {
		t.Errorf("the informer's node was changed to %v", left.Status)
	}
	clear(got)
	shim.current.Store(nil)
	if SetAdmissionCores(left, set); len(got) > 0 {
		t.Errorf("without a file pods are admitted by %v", got)
	}
}
