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
	"encoding/json"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	"workload.openshift.io/partition"
)

// LatchChanged reads the latch: the enabled annotation of the namespace kube-system, which
// is nil if there is none. A type that was found active stays so, in all replicas and after
// their restarts, until an administrator takes it out of there. Names that are not valid types do
// not count, nor does what follows the first maxTypes.
func (t *Tracker) LatchChanged(kubeSystem *v1.Namespace) {
	latched := map[string]bool{}
	if kubeSystem != nil {
		for _, workloadType := range partition.ParseTypes(kubeSystem.Annotations[partition.EnabledAnnotation]) {
			if len(latched) < maxTypes && partition.ValidateType(workloadType) == nil {
				latched[workloadType] = true
			}
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.latched = latched
	t.publish()
}

// unlatched returns the active types that the latch does not have yet.
func (t *Tracker) unlatched() (missing []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for workloadType, state := range *t.types.Load() {
		if state.active && !state.configured && !t.latched[workloadType] {
			missing = append(missing, workloadType)
		}
	}
	slices.Sort(missing)
	return missing
}

// Run writes the latch and sends Events until the context ends. It does nothing before
// Synced, so it may be called before all else is set.
func (t *Tracker) Run(ctx context.Context) {
	context.AfterFunc(ctx, t.events.Shutdown)
	t.run(ctx, func(ctx context.Context, workloadTypes []string) ([]string, error) {
		return latch(ctx, t.client, workloadTypes)
	})
}

// run writes the latch whenever a type became active, and tries again where that failed:
// kube-system may not exist yet, or a webhook that guards it may be away. write returns
// those types that it added.
func (t *Tracker) run(ctx context.Context, write func(context.Context, []string) ([]string, error)) {
	const (
		untilSynced  = 100 * time.Millisecond
		firstRetry   = time.Second
		longestRetry = time.Minute
	)
	var again <-chan time.Time
	retry := firstRetry
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.changed:
		case <-again:
		}
		again = nil
		if !t.Synced() {
			again = time.After(untilSynced)
			continue
		}
		missing := t.unlatched()
		if len(missing) == 0 {
			t.failed.Store(false)
			continue
		}
		added, err := write(ctx, missing)
		t.failed.Store(err != nil)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Active workload types could not be latched: they stop being active when a node without them joins; trying again", "workloadTypes", missing,
				"namespace", metav1.NamespaceSystem, "annotation", partition.EnabledAnnotation, "after", retry)
			again = time.After(retry)
			retry = min(2*retry, longestRetry)
			continue
		}
		retry = firstRetry
		klog.FromContext(ctx).Info("Workload types became active", "workloadTypes", missing)
		if len(added) > 0 && t.latchedNow != nil {
			t.latchedNow(ctx, added)
		}
	}
}

// latch adds types to the enabled annotation, and returns those that were not there. It
// reads the annotation first and writes on condition that it is still that, so that no
// replica undoes what another has latched.
func latch(ctx context.Context, client kubernetes.Interface, workloadTypes []string) (added []string, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		namespace, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if err != nil {
			return err
		}
		latched := partition.ParseTypes(namespace.Annotations[partition.EnabledAnnotation])
		added = slices.DeleteFunc(slices.Clone(workloadTypes), func(workloadType string) bool { return slices.Contains(latched, workloadType) })
		if len(added) == 0 {
			return nil
		}
		types := slices.Concat(latched, added)
		slices.Sort(types)
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"resourceVersion": namespace.ResourceVersion,
			"annotations":     map[string]string{partition.EnabledAnnotation: strings.Join(slices.Compact(types), ",")},
		}})
		if err != nil {
			return err
		}
		_, err = client.CoreV1().Namespaces().Patch(ctx, metav1.NamespaceSystem, apitypes.MergePatchType, patch, metav1.PatchOptions{FieldManager: "workload-partitioning"})
		return err
	})
	return added, err
}
