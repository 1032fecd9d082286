// SPDX-License-Identifier: Apache-2.0

package status

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	resourcehelper "k8s.io/component-helpers/resource"

	"google.golang.org/protobuf/encoding/protowire"
	"workload.openshift.io/kubernetes/node/reported"
	"workload.openshift.io/partition"
)

// readPods lists the pods of all namespaces, page by page, and decodes only those that name
// workload partitioning.
func (r *reader) readPods(ctx context.Context) error {
	list := pages(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		body, err := r.client.CoreV1().RESTClient().Get().Resource("pods").VersionedParams(&options, scheme.ParameterCodec).
			SetHeader("Accept", runtime.ContentTypeProtobuf).Do(ctx).Raw()
		if err != nil {
			return nil, err
		}
		return decodePods(body)
	})
	err := list(ctx, func(object runtime.Object) error {
		r.addPod(object.(*v1.Pod))
		return nil
	})
	r.podsUnknown = err != nil
	return Note(&r.unknown, "list pods", "which pods are partitioned or were skipped, and what they request", err)
}

// Fields of messages: k8s.io/apimachinery, pkg/runtime/generated.proto (Unknown), and
// k8s.io/api, core/v1/generated.proto (PodList, Pod, PodStatus).
const (
	unknownRaw   = 2
	listMetadata = 1
	listItems    = 2
	podMetadata  = 1
	podSpec      = 2
	podStatus    = 3
	statusPhase  = 1
)

// protobufPrefix begins each message (k8s.io/apimachinery, pkg/runtime/serializer/protobuf).
var protobufPrefix = []byte("k8s\x00")

// decodePods decodes a list of pods, without those that say nothing of workload partitioning.
// Names of annotations and resources are in the message as they are, so what does not
// contain the domain has neither. The status of a pod has nothing but its phase.
func decodePods(body []byte) (*v1.PodList, error) {
	message, ok := bytes.CutPrefix(body, protobufPrefix)
	if !ok {
		return nil, fmt.Errorf("the list of pods is not a message of Kubernetes' protobuf: it begins with %q", body[:min(len(body), len(protobufPrefix))])
	}
	pods := &v1.PodList{}
	if err := eachField(message, func(field protowire.Number, raw []byte) error {
		if field != unknownRaw {
			return nil
		}
		return eachField(raw, func(field protowire.Number, value []byte) error {
			switch {
			case field == listMetadata:
				return pods.ListMeta.Unmarshal(value)
			case field == listItems && bytes.Contains(value, []byte(partition.Domain)):
				pods.Items = append(pods.Items, v1.Pod{})
				return decodePod(&pods.Items[len(pods.Items)-1], value)
			}
			return nil
		})
	}); err != nil {
		return nil, fmt.Errorf("decoding a list of pods: %w", err)
	}
	return pods, nil
}

func decodePod(pod *v1.Pod, message []byte) error {
	return eachField(message, func(field protowire.Number, value []byte) error {
		switch field {
		case podMetadata:
			return pod.ObjectMeta.Unmarshal(value)
		case podSpec:
			return pod.Spec.Unmarshal(value)
		case podStatus:
			return eachField(value, func(field protowire.Number, value []byte) error {
				if field == statusPhase {
					pod.Status.Phase = v1.PodPhase(value)
				}
				return nil
			})
		}
		return nil
	})
}

// eachField calls a function for each field of a message that has bytes as its value.
func eachField(message []byte, call func(field protowire.Number, value []byte) error) error {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		if n = protowire.ConsumeFieldValue(field, kind, message); n < 0 {
			return protowire.ParseError(n)
		}
		if kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message)
			if err := call(field, value); err != nil {
				return err
			}
		}
		message = message[n:]
	}
	return nil
}

func (r *reader) addPod(pod *v1.Pod) {
	if workloadType, ok := reported.PartitionedType(pod); ok {
		r.addPartitioned(pod, workloadType)
		r.judge(pod, true, workloadType)
		return
	}
	if Ended(pod) {
		return
	}
	// Admission and the kubelet leave a skipped pod neither a target nor cores: a warning next to them is forged.
	if Undecided(pod) {
		if !r.judge(pod, false, claimed(pod)...) {
			r.undecided.add(pod, "")
		}
		return
	}
	if decision, ok := partition.ParseMessage(pod.Annotations[partition.WarningAnnotation]); ok {
		group := skip{decision.Target.Type, decision.Reason}
		if r.skipped[group] == nil {
			r.skipped[group] = &Pods{}
		}
		r.skipped[group].add(pod, decision.Detail)
	}
}

// Undecided reports whether a pod that was neither partitioned nor skipped asks for a type, or
// has cores.
func Undecided(pod *v1.Pod) bool {
	target, errs := partition.ParseTarget(pod.Annotations)
	return target.Type != "" || len(errs) > 0 || carriesCores(pod)
}

func (r *reader) addPartitioned(pod *v1.Pod, workloadType string) {
	r.addWorkloads(pod)
	if Ended(pod) {
		return // the scheduler does not count it either
	}
	t := r.typeOf(workloadType)
	t.Pods++
	if pod.Spec.NodeName == "" {
		t.Unscheduled++
		return
	}
	cores := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})[v1.ResourceName(partition.CoresResource(workloadType))]
	requested := cores.Value()
	node := r.nodeOf(pod.Spec.NodeName, workloadType)
	node.Pods++
	node.RequestedMillicores += requested
	t.RequestedMillicores += requested
	if requested > 0 && (node.Largest == nil || requested > node.Largest.Millicores) {
		node.Largest = &Largest{Namespace: pod.Namespace, Name: pod.Name, Millicores: requested}
	}
}

// Ended reports whether a pod has finished for good.
func Ended(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// workload names a workload as a pod's owner does.
type workload struct{ namespace, kind, name string }

// addWorkloads notes the owner of a partitioned pod, and the Deployment above it, which names
// its ReplicaSets after itself and this label of their pods (pkg/controller/deployment/sync.go).
func (r *reader) addWorkloads(pod *v1.Pod) {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return
	}
	of := workload{pod.Namespace, owner.Kind, owner.Name}
	if _, known := r.workloads[of]; known {
		return
	}
	names := make([]string, len(pod.Spec.Containers))
	for i := range names {
		names[i] = pod.Spec.Containers[i].Name
	}
	r.workloads[of] = names
	hash := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	if deployment, cut := strings.CutSuffix(owner.Name, "-"+hash); owner.Kind == "ReplicaSet" && hash != "" && cut {
		r.workloads[workload{pod.Namespace, "Deployment", deployment}] = names
	}
}

func carriesCores(pod *v1.Pod) bool {
	return slices.ContainsFunc(partition.V1(pod).Containers, func(c partition.Container[v1.ResourceList, v1.ResourceName]) bool {
		return partition.CarriesCores(*c.Requests) || partition.CarriesCores(*c.Limits)
	})
}

// add counts a pod, and names it if it is one of the newest.
func (p *Pods) add(pod *v1.Pod, detail string) {
	p.Count++
	named := Pod{Namespace: pod.Namespace, Name: pod.Name, Created: pod.CreationTimestamp, Detail: detail}
	at, _ := slices.BinarySearchFunc(p.Newest, named, newer)
	if at == mostNamed {
		return
	}
	p.Newest = slices.Insert(p.Newest[:min(len(p.Newest), mostNamed-1)], at, named)
}

// newer sorts the newest pods first, and pods of the same age by name.
func newer(a, b Pod) int {
	return cmp.Or(b.Created.Compare(a.Created.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
