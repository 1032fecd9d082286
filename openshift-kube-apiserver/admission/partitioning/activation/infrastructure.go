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
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"
	"workload.openshift.io/kubernetes/openshift-kube-apiserver/admission/partitioning/config"
)

// OpenShift's object, of which there is one in a cluster
// (github.com/openshift/api, config/v1, Infrastructure).
var infrastructures = schema.GroupVersionResource{Group: "config.openshift.io", Version: "v1", Resource: "infrastructures"}

const (
	infrastructureName = "cluster"
	allNodes           = "AllNodes"
)

// SetDynamicClient gives the client that reads the Infrastructure object until the context
// ends, if the configuration names that.
func (t *Tracker) SetDynamicClient(ctx context.Context, client dynamic.Interface) {
	if t.source == config.SourceInfrastructure {
		go followInfrastructure(ctx, client, t.decide)
	}
}

// followInfrastructure tells, until the context ends, whether the Infrastructure object
// has partitioning on, at first and after each change. An object, or a whole kind, that
// is not there counts as off. Nothing is told while the answer is not known: not
// before the first, and not when the server is gone for a while.
//
// An informer would not do: it cannot tell a kind that is not there from a cache that
// is not filled yet, and looks for such a kind only every 30 seconds.
func followInfrastructure(ctx context.Context, client dynamic.Interface, tell func(on bool)) {
	const between = time.Second
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := watchInfrastructure(ctx, client.Resource(infrastructures), tell); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("The Infrastructure object could not be read; trying again", "err", err)
		}
	}, between)
}

// watchInfrastructure follows the object until the server ends the watch.
func watchInfrastructure(ctx context.Context, client dynamic.ResourceInterface, tell func(on bool)) error {
	only := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, infrastructureName).String()}
	list, err := client.List(ctx, only)
	if apierrors.IsNotFound(err) {
		tell(false)
		return nil
	}
	if err != nil {
		return err
	}
	tell(len(list.Items) > 0 && partitionsAllNodes(&list.Items[0]))
	only.ResourceVersion = list.GetResourceVersion()
	events, err := client.Watch(ctx, only)
	if err != nil {
		return err
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		object, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			return apierrors.FromObject(event.Object)
		}
		tell(event.Type != watch.Deleted && partitionsAllNodes(object))
	}
	return nil
}

func partitionsAllNodes(infrastructure *unstructured.Unstructured) bool {
	value, _, _ := unstructured.NestedString(infrastructure.Object, "status", "cpuPartitioning")
	return value == allNodes
}
