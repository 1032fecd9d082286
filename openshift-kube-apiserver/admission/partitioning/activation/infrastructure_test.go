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

package activation

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"workload.openshift.io/kubernetes/openshift-kube-apiserver/admission/partitioning/config"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest"
)

func TestListedTypesAreActiveBeforeTheFirstNode(t *testing.T) {
	tracker, client := startWith(t, config.Activation{Source: config.SourceTypes, Types: []string{"management"}}, nil,
		partitiontest.Namespace("kube-system", "", ""), partitiontest.Namespace("open", partition.AllowedAnnotation, "management, other"))
	if !tracker.Active("management") || tracker.Active("other") {
		t.Errorf("the types are %v", *tracker.types.Load())
	}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), partitiontest.Node("a", "other"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	partitiontest.Eventually(t, "the nodes decide for other types", func() bool { return tracker.Active("other") })
	if !tracker.Active("management") {
		t.Error("a node without the type made it inactive")
	}
	partitiontest.Eventually(t, "only what the nodes decide is latched", func() bool {
		system, err := client.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
		return err == nil && system.Annotations[partition.EnabledAnnotation] == "other"
	})
}

func infrastructure(value string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "config.openshift.io/v1", "kind": "Infrastructure", "metadata": map[string]any{"name": "cluster"}}}
	if value != "" {
		object.Object["status"] = map[string]any{"cpuPartitioning": value}
	}
	return object
}

func TestInfrastructureDecides(t *testing.T) {
	kinds := map[schema.GroupVersionResource]string{infrastructures: "InfrastructureList"}
	for name, test := range map[string]struct {
		object     *unstructured.Unstructured
		wantActive bool
	}{"absent": {}, "empty": {object: infrastructure("")}, "None": {object: infrastructure("None")}, "AllNodes": {object: infrastructure("AllNodes"), wantActive: true}} {
		t.Run(name, func(t *testing.T) {
			var objects []runtime.Object
			if test.object != nil {
				objects = append(objects, test.object)
			}
			client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, objects...)
			// A latch of another time has no say.
			tracker, _ := startWith(t, config.Activation{Source: config.SourceInfrastructure, Types: []string{"management"}}, client, partitiontest.Namespace("kube-system", partition.EnabledAnnotation, "management"), partitiontest.Node("a", "management"))
			if got := tracker.Active("management"); got != test.wantActive {
				t.Errorf("the type is active: %v", got)
			}
		})
	}
	t.Run("it changes", func(t *testing.T) {
		client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, infrastructure("None"))
		tracker, _ := startWith(t, config.Activation{Source: config.SourceInfrastructure, Types: []string{"management"}}, client, partitiontest.Namespace("kube-system", "", ""))
		resource := client.Resource(infrastructures)
		for _, step := range []struct {
			value string
			want  bool
		}{{"AllNodes", true}, {"None", false}, {"AllNodes", true}} {
			if _, err := resource.Update(t.Context(), infrastructure(step.value), metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			partitiontest.Eventually(t, "the type follows "+step.value, func() bool { return tracker.Active("management") == step.want })
		}
		if err := resource.Delete(t.Context(), "cluster", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		partitiontest.Eventually(t, "the type follows the deletion", func() bool { return !tracker.Active("management") })
	})
	t.Run("a kind that is not there is absent, a server that fails is not known", func(t *testing.T) {
		client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)
		answer := make(chan error, 2)
		answer <- errors.New("connection refused")
		client.PrependReactor("list", "infrastructures", func(clienttesting.Action) (bool, runtime.Object, error) {
			select {
			case err := <-answer:
				return true, nil, err
			default:
				return true, nil, apierrors.NewNotFound(infrastructures.GroupResource(), "")
			}
		})
		told := make(chan bool, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if err := watchInfrastructure(ctx, client.Resource(infrastructures), func(on bool) { told <- on }); err == nil || len(told) > 0 {
			t.Errorf("a failure gave %v, and told %d answers", err, len(told))
		}
		if err := watchInfrastructure(ctx, client.Resource(infrastructures), func(on bool) { told <- on }); err != nil || <-told {
			t.Errorf("a missing kind gave %v", err)
		}
	})
}
