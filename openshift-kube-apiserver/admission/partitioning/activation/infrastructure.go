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
	"fmt"
	"maps"
	"slices"
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

// verdict is what the Infrastructure object says of the types on which it decides.
type verdict struct {
	active bool
	// awaits names the object, and says what it lacks for a decision. Empty means that it has
	// decided.
	awaits string
}

// Verdicts of an object that has not decided. The installer's bootstrap writes it, so none of
// them is for long, unless the configuration is wrong.
var (
	notRead   = undecided("has not been read")
	notServed = undecided("does not exist, because its kind is not served")
	absent    = undecided("does not exist")
	noStatus  = undecided("has no status")
)

func undecided(why string) verdict {
	return verdict{awaits: fmt.Sprintf("%s %q %s", infrastructures.GroupResource(), infrastructureName, why)}
}

// judge reads the object. An empty value means None, as OpenShift's API has it.
func judge(infrastructure *unstructured.Unstructured) verdict {
	status, has := infrastructure.Object["status"].(map[string]any)
	if !has {
		return noStatus
	}
	return verdict{active: status["cpuPartitioning"] == allNodes}
}

// SetDynamicClient gives the client that reads the Infrastructure object until the context
// ends, if the configuration names that.
func (t *Tracker) SetDynamicClient(ctx context.Context, client dynamic.Interface) {
	if t.source == config.SourceInfrastructure {
		go followInfrastructure(ctx, client, t.decide)
		go t.remind(ctx, time.Minute)
	}
}

// remind has an error in the log every so often, until the context ends, while nothing is
// decided: on a cluster that no installer prepares, pods that ask are never created.
func (t *Tracker) remind(ctx context.Context, every time.Duration) {
	// It ends with the context and has no other error.
	_ = wait.PollUntilContextCancel(ctx, every, false, func(ctx context.Context) (bool, error) {
		t.mu.Lock()
		awaits, workloadTypes := t.awaits, slices.Sorted(maps.Keys(t.decided))
		t.mu.Unlock()
		if awaits != "" {
			klog.FromContext(ctx).Error(nil, "Pods that ask for these workload types get 503: the object that decides on them has not decided yet. "+
				"The installer must write it; where none does, set activation.source to Nodes or Types in the configuration of the admission plugin", "workloadTypes", workloadTypes, "awaits", awaits)
		}
		return false, nil
	})
}

// followInfrastructure calls tell with what the Infrastructure object has decided, at first
// and after each change, until the context ends. It does not while the server is gone.
//
// An informer would not do: it cannot tell a kind that is not there from a cache that
// is not filled yet, and looks for such a kind only every 30 seconds.
func followInfrastructure(ctx context.Context, client dynamic.Interface, tell func(verdict)) {
	const between = time.Second
	last := notRead
	changed := func(now verdict) {
		if now == last {
			return
		}
		last = now
		if now.awaits != "" {
			klog.FromContext(ctx).Info("The Infrastructure object has not decided on workload types; pods that ask for them wait", "awaits", now.awaits)
		} else {
			klog.FromContext(ctx).Info("The Infrastructure object has decided on workload types", "active", now.active)
		}
		tell(now)
	}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := watchInfrastructure(ctx, client.Resource(infrastructures), changed); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("The Infrastructure object could not be read; trying again", "err", err)
		}
	}, between)
}

// watchInfrastructure follows the object until the server ends the watch.
func watchInfrastructure(ctx context.Context, client dynamic.ResourceInterface, tell func(verdict)) error {
	only := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, infrastructureName).String()}
	list, err := client.List(ctx, only)
	if apierrors.IsNotFound(err) {
		tell(notServed)
		return nil
	}
	if err != nil {
		return err
	}
	if len(list.Items) > 0 {
		tell(judge(&list.Items[0]))
	} else {
		tell(absent)
	}
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
		if event.Type == watch.Deleted {
			tell(absent)
		} else {
			tell(judge(object))
		}
	}
	return nil
}
