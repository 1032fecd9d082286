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

package partitiontest

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"workload.openshift.io/partition"
)

// Node returns a node of four CPUs that reports the cores of workload types.
func Node(name string, types ...string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeStatus{Capacity: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")}}}
	for _, workloadType := range types {
		n.Status.Capacity[v1.ResourceName(partition.CoresResource(workloadType))] = resource.MustParse("4000")
	}
	return n
}

// Namespace returns a namespace with an annotation; with none if the name is empty.
func Namespace(name, annotation, value string) *v1.Namespace {
	n := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if annotation != "" {
		n.Annotations = map[string]string{annotation: value}
	}
	return n
}

// Eventually ends the test unless a condition holds within five seconds.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	met := func(context.Context) (bool, error) { return condition(), nil }
	if err := wait.PollUntilContextTimeout(context.Background(), 10*time.Millisecond, 5*time.Second, true, met); err != nil {
		t.Fatal("not in time: " + what)
	}
}
