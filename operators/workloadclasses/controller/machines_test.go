// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/operators/workloadclasses"
)

func TestTheMinimumOfAClass(t *testing.T) {
	f := &fleet{
		byNode: map[string]*workloadclasses.Machine{"a1": {Set: "a"}, "a2": {Set: "a"}, "b1": {Set: "b"}, "zero1": {Set: "zero"}, "c1": {Set: "c"}, "none": {}},
		sets: map[string]*workloadclasses.Set{
			"a": {Name: "a", Minimum: ptr.To[int32](2)}, "b": {Name: "b", Minimum: ptr.To[int32](3)}, "zero": {Name: "zero", Minimum: ptr.To[int32](0)}, "c": {Name: "c"},
		},
	}
	for name, test := range map[string]struct {
		nodes []string
		want  int
	}{
		"that of its set":                         {[]string{"a1", "a2"}, 2},
		"the sum of those of its sets":            {[]string{"a1", "a2", "b1"}, 5},
		"zero, where the autoscaler may go there": {[]string{"zero1"}, 0},
		"one, where no autoscaler is known":       {[]string{"c1", "none", "unknown"}, 1},
	} {
		if got := f.minimum(test.nodes); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

// Why the size of a set must not be changed, and whose Machine is whose.
func TestObstaclesOfASet(t *testing.T) {
	// What there is unless a row says otherwise: one set of two Machines that run.
	const openshift = `
- {apiVersion: machine.openshift.io/v1beta1, kind: MachineSet, metadata: {name: s, namespace: m, generation: 3}, spec: {replicas: 2}, status: {observedGeneration: 3}}
- {apiVersion: autoscaling.openshift.io/v1beta1, kind: MachineAutoscaler, metadata: {name: s, namespace: m}, spec: {minReplicas: 1, scaleTargetRef: {kind: MachineSet, name: s}}}
- {apiVersion: machine.openshift.io/v1beta1, kind: Machine, metadata: {name: a, namespace: m, uid: a, ownerReferences: [{apiVersion: a/b, kind: MachineSet, name: s, uid: s}]}, status: {phase: Running, nodeRef: {name: a}}}
- {apiVersion: machine.openshift.io/v1beta1, kind: Machine, metadata: {name: b, namespace: m, uid: b, ownerReferences: [{apiVersion: a/b, kind: MachineSet, name: s, uid: s}]}, status: {phase: Running, nodeRef: {name: b}}}
`
	const clusterAPI = `
- {apiVersion: cluster.x-k8s.io/v1beta2, kind: MachineDeployment, metadata: {name: s, namespace: m, generation: 3, annotations: {cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size: "1"}}, spec: {replicas: 2}, status: {observedGeneration: 3}}
- {apiVersion: cluster.x-k8s.io/v1beta2, kind: MachineSet, metadata: {name: s-1, namespace: m, uid: s1, generation: 1, ownerReferences: [{apiVersion: a/b, kind: MachineDeployment, name: s, uid: s, controller: true}]}, spec: {replicas: 2}, status: {observedGeneration: 1}}
- {apiVersion: cluster.x-k8s.io/v1beta2, kind: MachineSet, metadata: {name: s-0, namespace: m, uid: s0, generation: 1, ownerReferences: [{apiVersion: a/b, kind: MachineDeployment, name: s, uid: s, controller: true}]}, spec: {replicas: 0}, status: {observedGeneration: 1}}
- {apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine, metadata: {name: a, namespace: m, uid: a, ownerReferences: [{apiVersion: a/b, kind: MachineSet, name: s-1, uid: s1}]}, status: {phase: Running, nodeRef: {name: a}}}
- {apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine, metadata: {name: b, namespace: m, uid: b, ownerReferences: [{apiVersion: a/b, kind: MachineSet, name: s-1, uid: s1}]}, status: {phase: Running, nodeRef: {name: b}}}
`
	for name, test := range map[string]struct {
		api      MachineAPI
		from, to string
		want     workloadclasses.ObstacleCode
		unowned  bool
	}{
		"nothing":                                        {MachineSet, "", "", "", false},
		"a Machine that comes":                           {MachineSet, "phase: Running, nodeRef: {name: b}", "phase: Provisioned", workloadclasses.ScaleUp, false},
		"a Machine that is just there":                   {MachineSet, ", status: {phase: Running, nodeRef: {name: b}}", "", workloadclasses.ScaleUp, false},
		"a Machine that failed":                          {MachineSet, "phase: Running, nodeRef: {name: b}", "phase: Failed, nodeRef: {name: b}", workloadclasses.MachineNotRunning, false},
		"a Machine that runs with an error":              {MachineSet, "nodeRef: {name: b}", "errorReason: Gone, nodeRef: {name: b}", workloadclasses.MachineNotRunning, false},
		"a Machine that cannot be made":                  {MachineSet, "phase: Running, nodeRef: {name: b}", "phase: Provisioning, errorMessage: no quota", workloadclasses.MachineNotRunning, false},
		"somebody else's mark":                           {MachineSet, "name: b, namespace: m, uid: b", "name: b, namespace: m, uid: b, annotations: {machine.openshift.io/delete-machine: x}", workloadclasses.MarkedByOthers, false},
		"a set that goes":                                {MachineSet, "generation: 3", "generation: 3, finalizers: [a/b], deletionTimestamp: '2026-11-28T12:00:00Z'", workloadclasses.SetDeleting, false},
		"a set of the other API":                         {MachineSet, "observedGeneration: 3", "observedGeneration: 3, authoritativeAPI: ClusterAPI", workloadclasses.OtherAPI, false},
		"a minimum that is no number":                    {MachineSet, "generation: 3", "generation: 3, annotations: {machine.openshift.io/cluster-api-autoscaler-node-group-min-size: few}", workloadclasses.MinimumUnreadable, false},
		"a Machine of two sets":                          {MachineSet, "kind: MachineSet, name: s, uid: s}]}, status: {phase: Running, nodeRef: {name: a}}", "kind: MachineSet, name: s, uid: s}, {apiVersion: a/b, kind: MachineSet, name: t, uid: t}]}, status: {phase: Running, nodeRef: {name: a}}", "", true},
		"two Machines of one node":                       {MachineSet, "nodeRef: {name: b}", "nodeRef: {name: a}", "", true},
		"nothing, on Cluster API":                        {MachineDeployment, "", "", "", false},
		"a rollout":                                      {MachineDeployment, "replicas: 0", "replicas: 1", workloadclasses.Rollout, false},
		"a paused MachineDeployment":                     {MachineDeployment, "spec: {replicas: 2}, status: {observedGeneration: 3}", "spec: {replicas: 2, paused: true}, status: {observedGeneration: 3}", workloadclasses.SetPaused, false},
		"one that is paused by annotation":               {MachineDeployment, "annotations: {", "annotations: {cluster.x-k8s.io/paused: '', ", workloadclasses.SetPaused, false},
		"a Machine that comes there":                     {MachineDeployment, "phase: Running, nodeRef: {name: b}", "phase: Pending", workloadclasses.ScaleUp, false},
		"a Machine that is being deleted is no obstacle": {MachineDeployment, "name: b, namespace: m, uid: b", "name: b, namespace: m, uid: b, finalizers: [a/b], deletionTimestamp: '2026-11-28T12:00:00Z'", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			text := openshift
			if test.api == MachineDeployment {
				text = clusterAPI
			}
			if !strings.Contains(text, test.from) {
				t.Fatalf("%q is not in %s", test.from, text)
			}
			var objects []map[string]any
			if err := yaml.Unmarshal([]byte(strings.Replace(text, test.from, test.to, 1)), &objects); err != nil {
				t.Fatal(err)
			}
			scheme := runtime.NewScheme()
			api := machineAPIs[test.api]
			for _, kind := range []schema.GroupVersionKind{api.machine, api.set, api.between, api.autoscaler} {
				if !kind.Empty() {
					scheme.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
					scheme.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), &unstructured.UnstructuredList{})
				}
			}
			builder := fake.NewClientBuilder().WithScheme(scheme)
			for _, object := range objects {
				builder = builder.WithObjects(&unstructured.Unstructured{Object: object})
			}
			fleet, err := (&machines{machineAPI: api, reader: builder.Build(), namespace: "m"}).look(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			set := fleet.sets["s"]
			if set == nil || set.Obstacle.Code != test.want || (set.Obstacle.Why == "") != (test.want == "") {
				t.Errorf("set %+v, want the obstacle %q", set, test.want)
			}
			if of := fleet.set(fleet.byNode["a"]); (of == nil) != test.unowned {
				t.Errorf("node a is of set %+v", of)
			}
		})
	}
}
