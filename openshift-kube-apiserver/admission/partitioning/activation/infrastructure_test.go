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
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"workload.openshift.io/kubernetes/openshift-kube-apiserver/admission/partitioning/config"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest"
)

func TestListedTypesAreActiveBeforeTheFirstNode(t *testing.T) {
	tracker, client := startWith(t, config.Activation{Source: config.SourceTypes, Types: []string{"management"}}, nil,
		partitiontest.Namespace("kube-system", "", ""), partitiontest.Namespace("open", partition.AllowedAnnotation, "management, other"))
	if !tracker.States()["management"].Active || tracker.States()["other"].Active {
		t.Errorf("the types are %v", *tracker.types.Load())
	}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), partitiontest.Node("a", "other"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	partitiontest.Eventually(t, "the nodes decide for other types", func() bool { return tracker.States()["other"].Active })
	if !tracker.States()["management"].Active {
		t.Error("a node without the type made it inactive")
	}
	partitiontest.Eventually(t, "only what the nodes decide is latched", func() bool {
		system, err := client.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
		return err == nil && system.Annotations[partition.EnabledAnnotation] == "other"
	})
}

// byInfrastructure has the object decide on the type management.
var byInfrastructure = config.Activation{Source: config.SourceInfrastructure, Types: []string{"management"}}

// infrastructure is the object with a status, or with none if that is nil.
func infrastructure(status any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "config.openshift.io/v1", "kind": "Infrastructure", "metadata": map[string]any{"name": "cluster"}}}
	if status != nil {
		object.Object["status"] = status
	}
	return object
}

func partitions(value any) map[string]any { return map[string]any{"cpuPartitioning": value} }

// serving returns a client of a server that has the object, or none if it is nil.
func serving(object *unstructured.Unstructured) *dynamicfake.FakeDynamicClient {
	var objects []runtime.Object
	if object != nil {
		objects = append(objects, object)
	}
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{infrastructures: "InfrastructureList"}, objects...)
}

// failing returns a client whose server answers each list with the error.
func failing(err error) *dynamicfake.FakeDynamicClient {
	client := serving(nil)
	client.PrependReactor("list", "infrastructures", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
	return client
}

// answer is what a tracker says of a type.
type answer struct {
	reason partition.Reason
	awaits string
}

func ask(tracker *Tracker, workloadType string) answer {
	reason, awaits := tracker.Reason(workloadType)
	return answer{reason, awaits}
}

func TestInfrastructureDecides(t *testing.T) {
	const name = `infrastructures.config.openshift.io "cluster" `
	against := answer{reason: partition.ReasonDecidedAgainst}
	awaits := func(what string) answer { return answer{partition.ReasonTypeInactive, name + what} }
	for what, test := range map[string]struct {
		client dynamic.Interface
		want   answer
	}{
		"the server fails":          {failing(errors.New("connection refused")), awaits("has not been read")},
		"the kind is not served":    {failing(apierrors.NewNotFound(infrastructures.GroupResource(), "")), awaits("does not exist, because its kind is not served")},
		"the object is absent":      {serving(nil), awaits("does not exist")},
		"it has no status":          {serving(infrastructure(nil)), awaits("has no status")},
		"its status is null":        {serving(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "config.openshift.io/v1", "kind": "Infrastructure", "metadata": map[string]any{"name": "cluster"}, "status": nil}}), awaits("has no status")},
		"its status has no value":   {serving(infrastructure(map[string]any{"infrastructureName": "a"})), against},
		"its value is empty":        {serving(infrastructure(partitions(""))), against},
		"its value is None":         {serving(infrastructure(partitions("None"))), against},
		"its value is not known":    {serving(infrastructure(partitions("SomeNodes"))), against},
		"its value is not a string": {serving(infrastructure(partitions(true))), against},
		"its value is AllNodes":     {serving(infrastructure(partitions("AllNodes"))), answer{}},
	} {
		t.Run(what, func(t *testing.T) {
			// A latch of another time has no say, nor have nodes.
			tracker, _ := startWith(t, byInfrastructure, test.client, partitiontest.Namespace("kube-system", partition.EnabledAnnotation, "management"), partitiontest.Node("a", "management", "other"))
			partitiontest.Eventually(t, "the object has its say", func() bool { return ask(tracker, "management") == test.want })
			if active := tracker.States()["management"].Active; active != (test.want == answer{}) {
				t.Errorf("the gauge says %v", active)
			}
			if got := ask(tracker, "other"); got != (answer{}) {
				t.Errorf("of a type on which the nodes decide it says %+v", got)
			}
			if got := ask(tracker, "absent"); got != (answer{reason: partition.ReasonTypeInactive}) {
				t.Errorf("of an unknown type it says %+v", got)
			}
		})
	}
	t.Run("it changes", func(t *testing.T) {
		client := serving(nil)
		tracker, _ := startWith(t, byInfrastructure, client, partitiontest.Namespace("kube-system", "", ""))
		resource := client.Resource(infrastructures)
		follows := func(what string, want answer) {
			t.Helper()
			partitiontest.Eventually(t, "the type follows "+what, func() bool { return ask(tracker, "management") == want })
		}
		follows("its absence", awaits("does not exist"))
		if _, err := resource.Create(t.Context(), infrastructure(nil), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		follows("its creation", awaits("has no status"))
		for _, step := range []struct {
			value string
			want  answer
		}{{"", against}, {"AllNodes", answer{}}, {"None", against}, {"AllNodes", answer{}}} {
			if _, err := resource.Update(t.Context(), infrastructure(partitions(step.value)), metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			follows("the value "+step.value, step.want)
		}
		if err := resource.Delete(t.Context(), "cluster", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		follows("its deletion", awaits("does not exist"))
	})
}

// A server that fails says nothing: what has been decided stays.
func TestAServerThatFailsSaysNothing(t *testing.T) {
	for name, test := range map[string]struct {
		client *dynamicfake.FakeDynamicClient
		want   []verdict
		fails  bool
	}{
		"it fails":                 {failing(errors.New("connection refused")), nil, true},
		"it does not let us":       {failing(apierrors.NewForbidden(infrastructures.GroupResource(), "", nil)), nil, true},
		"it does not know of this": {failing(apierrors.NewNotFound(infrastructures.GroupResource(), "")), []verdict{notServed}, false},
	} {
		var told []verdict
		err := watchInfrastructure(t.Context(), test.client.Resource(infrastructures), func(now verdict) { told = append(told, now) })
		if (err != nil) != test.fails || !reflect.DeepEqual(told, test.want) {
			t.Errorf("%s: got %v, told %v", name, err, told)
		}
	}
}

// On a cluster that no installer prepares, the administrator must be able to find out why pods wait.
func TestTheLogSaysWhatIsMissing(t *testing.T) {
	for name, test := range map[string]struct {
		verdict verdict
		says    bool
	}{
		"the kind is not served":         {notServed, true},
		"an object that has not decided": {noStatus, true},
		"one that has":                   {verdict{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
			log := logger.GetSink().(ktesting.Underlier).GetBuffer()
			tracker := New(byInfrastructure)
			tracker.decide(test.verdict)
			go tracker.remind(klog.NewContext(t.Context(), logger), 20*time.Millisecond)
			said := func() int { return strings.Count(log.String(), "set activation.source to Nodes or Types") }
			if !test.says {
				time.Sleep(200 * time.Millisecond)
				if said() > 0 {
					t.Errorf("the log has\n%s", log)
				}
				return
			}
			partitiontest.Eventually(t, "the log says so again and again", func() bool { return said() > 1 })
			if text := log.String(); !strings.Contains(text, `["management"]`) || !strings.Contains(text, strings.ReplaceAll(test.verdict.awaits, `"`, `\"`)) {
				t.Errorf("the log has\n%s", text)
			}
		})
	}
}
